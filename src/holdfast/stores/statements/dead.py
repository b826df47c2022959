"""The dead letters: failed jobs, by the index `holdfast_jobs_dead`, newest first."""

from __future__ import annotations

from functools import cache

from holdfast.domain.causes import DIGITS
from holdfast.domain.lifecycle import TERMINAL
from holdfast.stores.schema import in_states
from holdfast.stores.statements.queries import job_columns
from holdfast.stores.statements.words import Statement, Words


def _said(words: Words, name: str) -> str:
    """A part of the last error, where anything may have been typed by hand."""
    if words.postgres:
        return f"j.last_error ->> '{name}'"
    return f"CASE WHEN json_valid(j.last_error) THEN json_extract(j.last_error, '$.{name}') END"


def _where(words: Words, filters: tuple[str, ...]) -> str:
    age = "-CAST(:older_than AS float8)" if words.postgres else "-:older_than"
    known = {
        "task": "j.task = :task",
        "queue": "j.queue = :queue",
        "after": f"j.id < {words.id('after')}",
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
        code = _said(words, "code")
        return f"""
            SELECT task, code, count(*), max(finished_at) FROM (
              SELECT j.task, {code} AS code, j.finished_at FROM holdfast_jobs j
              WHERE {_where(words, filters)} ORDER BY j.id DESC LIMIT :most) dead
            GROUP BY task, code ORDER BY count(*) DESC, task, code"""

    return Statement(f"dead.counts.{'.'.join(filters)}", build, replan=True)


def _without_digits(words: Words, text: str) -> str:
    """As the first step of `domain/causes.py`."""
    if words.postgres:
        return f"translate({text}, '{DIGITS}', '{'#' * len(DIGITS)}')"
    for digit in DIGITS:
        text = f"replace({text}, '{digit}', '#')"
    return text


def _causes(words: Words, where: str, order: str) -> str:
    """Task, code, message without digits, how many, when the last of them ended, and the last of them."""
    code, message = _said(words, "code"), _without_digits(words, f"substr({_said(words, 'message')}, 1, :length)")
    return f"""
        SELECT task, code, message, count(*), max(finished_at), max(id) FROM (
          SELECT {words.as_text("j.id")} AS id, j.task, j.finished_at, {code} AS code, {message} AS message
          FROM (
            SELECT j.id, j.task, j.last_error, j.finished_at FROM holdfast_jobs j
            WHERE {where} ORDER BY {order} DESC LIMIT :most) j) dead
        GROUP BY task, code, message"""


def _messages(words: Words) -> str:
    return f"""
        SELECT {words.as_text("j.id")}, substr({_said(words, "message")}, 1, :length) FROM holdfast_jobs j
        WHERE j.id {words.is_one_of()}"""


# Of one queue by the index of finished jobs; in words that the index of failed ones does not know, which has no queues.
_IN_QUEUE = f"{in_states(TERMINAL, 'j.state')} AND j.queue = :queue AND j.state >= 'failed' AND j.state <= 'failed'"
CAUSES = Statement("dead.causes", lambda words: _causes(words, "j.state = 'failed'", "j.id"), replan=True)
CAUSES_IN = Statement(
    "dead.causes_in", lambda words: _causes(words, _IN_QUEUE, "j.state DESC, j.finished_at"), replan=True
)
MESSAGES = Statement("dead.messages", _messages)
