"""The audit log backwards, a window of time after the other.

On Postgres the index of times only knows in which blocks a span of time lies: to ask it for the newest rows would read
them all. So a window is measured first, up to a limit, and read when it holds few enough rows to be sorted.
"""

from __future__ import annotations

from functools import cache

from holdfast.stores.statements.feed import COLUMNS, known_columns
from holdfast.stores.statements.words import Statement, Words

_ORDER = "ORDER BY e.at DESC, e.job_id DESC, e.seq DESC"


def _moment(words: Words, parameter: str) -> str:
    return f"CAST(:{parameter} AS timestamptz)" if words.postgres else f":{parameter}"


def _id(words: Words, parameter: str) -> str:
    return f"CAST(:{parameter} AS uuid)" if words.postgres else f":{parameter}"


def _among(words: Words, parameter: str) -> str:
    """For a JSON array of texts."""
    values = f"json_array_elements_text(CAST(:{parameter} AS json))" if words.postgres else f"json_each(:{parameter})"
    return f"(SELECT value FROM {values})"


def _before(words: Words) -> str:
    at = _moment(words, "at")
    return f"e.at <= {at} AND (e.at, e.job_id, e.seq) < ({at}, {_id(words, 'place')}, :seq)"


def _window(words: Words) -> str:
    return f"e.at >= {_moment(words, 'since')} AND {_before(words)}"


@cache
def page(filters: tuple[str, ...]) -> Statement:
    """The newest of a window, or of one job. The page is cut before jobs are looked up, unless they decide."""

    def build(words: Words) -> str:
        task, queue = known_columns(words)
        known = {
            "events": f"e.event IN {_among(words, 'events')}",
            "queues": f"{queue} IN {_among(words, 'queues')}",
            "task": f"{task} = :task",
            "worker": "e.worker = :worker",
            "job_id": f"e.job_id = {_id(words, 'job_id')}",
        }
        span = _before(words) if "job_id" in filters else _window(words)
        where = " AND ".join([span, *(known[name] for name in filters)])
        joined = "LEFT JOIN holdfast_jobs j ON j.id = e.job_id"
        decides = joined if {"queues", "task"}.intersection(filters) else ""
        own = ", ".join(words.as_text(f"e.{name}") if name == "job_id" else f"e.{name}" for name in COLUMNS[:-2])
        return f"""
            SELECT {own}, {task}, {queue} FROM (
              SELECT e.* FROM holdfast_events e {decides} WHERE {where} {_ORDER} LIMIT :limit) e
            {joined} {_ORDER}"""

    return Statement(f"audit.page.{'.'.join(filters)}", build, replan=True)


def _measure(words: Words) -> str:
    return f"SELECT count(*) FROM (SELECT 1 FROM holdfast_events e WHERE {_window(words)} LIMIT :most) counted"


def _older(words: Words) -> str:
    return f"SELECT 1 FROM holdfast_events e WHERE e.at < {_moment(words, 'since')} LIMIT 1"


MEASURE = Statement("audit.measure", _measure, replan=True)
OLDER = Statement("audit.older", _older, replan=True)
