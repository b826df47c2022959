"""What people look at. Every listing is a keyset page: a million jobs do not make the next page slower."""

from __future__ import annotations

from dataclasses import fields
from functools import cache

from holdfast.domain.job import Attempt, AuditEvent, Job
from holdfast.domain.lifecycle import CLAIMABLE
from holdfast.stores.schema import in_states
from holdfast.stores.statements.words import Statement, Words

JOB_COLUMNS = tuple(item.name for item in fields(Job))
EVENT_COLUMNS = tuple(item.name for item in fields(AuditEvent))
ATTEMPT_COLUMNS = tuple(item.name for item in fields(Attempt))
_IDS = ("id", "job_id", "replay_of")


def _columns(words: Words, names: tuple[str, ...], alias: str) -> str:
    return ", ".join(words.as_text(f"{alias}.{name}") if name in _IDS else f"{alias}.{name}" for name in names)


def job_columns(words: Words) -> str:
    """As `rows.job` reads them, of the table's alias `j`."""
    return _columns(words, JOB_COLUMNS, "j")


def _job(words: Words) -> str:
    return f"SELECT {_columns(words, JOB_COLUMNS, 'j')} FROM holdfast_jobs j WHERE j.id = {words.id()}"


@cache
def list_jobs(filters: tuple[str, ...]) -> Statement:
    """Newest first, continued before the id `after`. `filters` is a subset of the keys below."""

    def build(words: Words) -> str:
        states = words.texts("states")
        known = {
            "states": f"j.state IN (SELECT value FROM {states})",
            "queue": "j.queue = :queue",
            "task": "j.task = :task",
            "after": f"j.id < {words.id('after')}",
        }
        where = " AND ".join(known[name] for name in filters) or "true"
        return f"""
            SELECT {_columns(words, JOB_COLUMNS, "j")} FROM holdfast_jobs j
            WHERE {where} ORDER BY j.id DESC LIMIT :limit"""

    return Statement(f"queries.list_jobs.{'.'.join(filters)}", build)


def _events(words: Words) -> str:
    return f"""
        SELECT {_columns(words, EVENT_COLUMNS, "e")} FROM holdfast_events e
        WHERE e.job_id = {words.id()} ORDER BY e.seq"""


def _attempts(words: Words) -> str:
    return f"""
        SELECT {_columns(words, ATTEMPT_COLUMNS, "a")} FROM holdfast_attempts a
        WHERE a.job_id = {words.id()} ORDER BY a.attempt"""


def _refusals(words: Words) -> str:
    return f"""
        SELECT {words.as_text("f.job_id")}, f.attempt, f.verb, f.reason, f.worker, f.first_at, f.last_at, f.count
        FROM holdfast_refusals f
        WHERE {words.id()} IS NULL OR f.job_id = {words.id()}
        ORDER BY f.last_at DESC, f.job_id, f.attempt, f.verb LIMIT 1000"""


def _queues(words: Words) -> str:
    claimable = in_states(CLAIMABLE, "j.state")
    return f"""
        SELECT name, sum(ready), sum(scheduled), sum(running), min(oldest), max(paused_at), max(max_running) FROM (
          SELECT q.name, 0 AS ready, 0 AS scheduled, 0 AS running, NULL AS oldest, q.paused_at, q.max_running
          FROM holdfast_queues q
          UNION ALL
          SELECT j.queue, count(CASE WHEN j.run_after <= {words.fixed_now} THEN 1 END),
                 count(CASE WHEN j.run_after > {words.fixed_now} THEN 1 END), 0,
                 min(CASE WHEN j.run_after <= {words.fixed_now} THEN j.run_after END), NULL, NULL
          FROM holdfast_jobs j WHERE {claimable} GROUP BY j.queue
          UNION ALL
          SELECT j.queue, 0, 0, count(*), NULL, NULL, NULL FROM holdfast_jobs j
          WHERE j.state = 'running' GROUP BY j.queue) parts
        GROUP BY name ORDER BY name"""


def _counts(_words: Words) -> str:
    return "SELECT state, count(*) FROM holdfast_jobs GROUP BY state ORDER BY state"


JOB = Statement("queries.job", _job)
EVENTS = Statement("queries.events", _events)
ATTEMPTS = Statement("queries.attempts", _attempts)
REFUSALS = Statement("queries.refusals", _refusals)
QUEUES = Statement("queries.queues", _queues)
COUNTS = Statement("queries.counts", _counts)
