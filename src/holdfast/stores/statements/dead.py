"""The dead letters: failed jobs, by the index `holdfast_jobs_dead`, newest first."""

from __future__ import annotations

from functools import cache

from holdfast.stores.statements.queries import job_columns
from holdfast.stores.statements.words import Statement, Words


def _where(words: Words, filters: tuple[str, ...]) -> str:
    age = "-CAST(:older_than AS float8)" if words.postgres else "-:older_than"
    known = {
        "task": "j.task = :task",
        "queue": "j.queue = :queue",
        "after": f"j.id < {'CAST(:after AS uuid)' if words.postgres else ':after'}",
        "older_than": f"j.finished_at <= {words.after(age, words.fixed_now)}",
    }
    return " AND ".join(["j.state = 'failed'", *(known[name] for name in filters)])


@cache
def list_dead(filters: tuple[str, ...]) -> Statement:
    def build(words: Words) -> str:
        return f"""
            SELECT {job_columns(words)} FROM holdfast_jobs j
            WHERE {_where(words, filters)} ORDER BY j.id DESC LIMIT :limit"""

    return Statement(f"dead.list.{'.'.join(filters)}", build, replan=True)


@cache
def list_ids(filters: tuple[str, ...]) -> Statement:
    def build(words: Words) -> str:
        return f"""
            SELECT {words.as_text("j.id")} FROM holdfast_jobs j
            WHERE {_where(words, filters)} ORDER BY j.id DESC LIMIT :limit"""

    return Statement(f"dead.ids.{'.'.join(filters)}", build, replan=True)


@cache
def counts(filters: tuple[str, ...]) -> Statement:
    """By task and error code, of the newest `most` of them."""

    def build(words: Words) -> str:
        code = "j.last_error ->> 'code'" if words.postgres else "json_extract(j.last_error, '$.code')"
        return f"""
            SELECT task, code, count(*), max(finished_at) FROM (
              SELECT j.task, {code} AS code, j.finished_at FROM holdfast_jobs j
              WHERE {_where(words, filters)} ORDER BY j.id DESC LIMIT :most) dead
            GROUP BY task, code ORDER BY count(*) DESC, task, code"""

    return Statement(f"dead.counts.{'.'.join(filters)}", build, replan=True)


@cache
def newest(limited: bool) -> Statement:
    """What groups of them are made of, the newest first."""

    def build(words: Words) -> str:
        values = "json_array_elements_text(CAST(:queues AS json))" if words.postgres else "json_each(:queues)"
        ours = f"AND j.queue IN (SELECT value FROM {values})" if limited else ""
        said = "j.last_error ->> '{}'" if words.postgres else "json_extract(j.last_error, '$.{}')"
        return f"""
            SELECT {words.as_text("j.id")}, j.task, {said.format("code")},
                   substr({said.format("message")}, 1, :longest), j.finished_at
            FROM holdfast_jobs j WHERE j.state = 'failed' {ours} ORDER BY j.id DESC LIMIT :most"""

    return Statement(f"dead.newest.{'limited' if limited else 'all'}", build, replan=True)
