"""The audit log backwards: a window of time after the other, along the index of what seldom happens, or of some jobs.

On Postgres the index of times only knows in which blocks a span of time lies: to ask it for the newest rows would read
them all. So a window is measured first, up to a limit, and read when it holds few enough rows to be sorted.
"""

from __future__ import annotations

from functools import cache

from holdfast.domain.lifecycle import Event
from holdfast.stores.schema.audit import SELDOM_SQL
from holdfast.stores.statements.feed import known_columns, own_columns
from holdfast.stores.statements.words import Statement, Words

_ORDER = "ORDER BY e.at DESC, e.job_id DESC, e.seq DESC"


def _before(words: Words) -> str:
    at = words.moment("at")
    return f"e.at <= {at} AND (e.at, e.job_id, e.seq) < ({at}, {words.id('place')}, :seq)"


def _window(words: Words) -> str:
    return f"e.at >= {words.moment('since')} AND {_before(words)}"


_JOINED = "LEFT JOIN holdfast_jobs j ON j.id = e.job_id"
Filters = tuple[str, ...]


def _conditions(words: Words, filters: Filters) -> str:
    task, queue = known_columns(words)
    known = {
        "events": f"e.event IN {words.among('events')}",
        "queues": f"{queue} IN {words.among('queues')}",
        "task": f"{task} = :task",
        "worker": "e.worker = :worker",
        "job_id": f"e.job_id = {words.id('job_id')}",
    }
    return " AND ".join(["true", *(known[name] for name in filters)])


@cache
def page(filters: Filters) -> Statement:
    """The newest of a window, or of one job. The page is cut before jobs are looked up, unless they decide."""

    def build(words: Words) -> str:
        span = _before(words) if "job_id" in filters else _window(words)
        decides = _JOINED if {"queues", "task"}.intersection(filters) else ""
        return f"""
            SELECT {own_columns(words)}, {", ".join(known_columns(words))} FROM (
              SELECT e.* FROM holdfast_events e {decides} WHERE {span} AND {_conditions(words, filters)}
              {_ORDER} LIMIT :limit) e
            {_JOINED} {_ORDER}"""

    return Statement(f"audit.page.{'.'.join(filters)}", build, replan=True)


@cache
def walk(event: Event, filters: Filters) -> Statement:
    """So many rows of one event that seldom happens, each with its number and whether it is wanted: the last that was
    looked at may not be. Under the settings of `following`."""

    def build(words: Words) -> str:
        task, queue = known_columns(words)
        return f"""
            SELECT {own_columns(words)}, e.task, e.queue, e.number, e.wanted FROM (
              SELECT e.*, {task} AS task, {queue} AS queue, {_conditions(words, filters)} AS wanted
              FROM (
                SELECT e.*, row_number() OVER () AS number FROM (
                  SELECT e.* FROM holdfast_events e WHERE e.{SELDOM_SQL} AND e.event = '{event}' AND {_before(words)}
                  {_ORDER} LIMIT :look) e) e
              {_JOINED}) e
            WHERE e.wanted OR e.number = :look LIMIT :limit"""

    return Statement(f"audit.walk.{event}.{'.'.join(filters)}", build, replan=True)


@cache
def of_jobs(filters: Filters) -> Statement:
    """The newest of these jobs, and no more of any of them than of all."""

    def build(words: Words) -> str:
        newest = f"""
            holdfast_events e WHERE e.job_id = i.id AND {_before(words)} AND {_conditions(words, filters)}
            ORDER BY e.seq DESC LIMIT :limit"""
        if words.postgres:
            ids = "(SELECT CAST(value AS uuid) AS id FROM json_array_elements_text(CAST(:ids AS json))) i"
            found = f"SELECT e.* FROM {ids} CROSS JOIN LATERAL (SELECT e.* FROM {newest}) e"
        else:
            ids = "(SELECT value AS id FROM json_each(:ids)) i"
            found = f"""
                SELECT e.* FROM {ids}
                JOIN holdfast_events e ON e.job_id = i.id AND e.seq IN (SELECT e.seq FROM {newest})"""
        return f"""
            SELECT {own_columns(words)}, {", ".join(known_columns(words))}
            FROM (SELECT e.* FROM ({found}) e {_ORDER} LIMIT :limit) e
            {_JOINED} {_ORDER}"""

    return Statement(f"audit.of_jobs.{'.'.join(filters)}", build, replan=True)


def _measure(words: Words) -> str:
    return f"SELECT count(*) FROM (SELECT 1 FROM holdfast_events e WHERE {_window(words)} LIMIT :most) counted"


def _older(words: Words) -> str:
    return f"SELECT 1 FROM holdfast_events e WHERE e.at < {words.moment('since')} LIMIT 1"


MEASURE = Statement("audit.measure", _measure, replan=True)
OLDER = Statement("audit.older", _older, replan=True)
