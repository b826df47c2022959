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


def _id(words: Words, parameter: str = "id") -> str:
    return f"CAST(:{parameter} AS uuid)" if words.postgres else f":{parameter}"


def _job(words: Words) -> str:
    return f"SELECT {_columns(words, JOB_COLUMNS, 'j')} FROM holdfast_jobs j WHERE j.id = {_id(words)}"


@cache
def list_jobs(filters: tuple[str, ...]) -> Statement:
    """Newest first, continued before the id `after`. `filters` is a subset of the keys below."""

    def build(words: Words) -> str:
        states = "json_array_elements_text(CAST(:states AS json))" if words.postgres else "json_each(:states)"
        known = {
            "states": f"j.state IN (SELECT value FROM {states})",
            "queue": "j.queue = :queue",
            "task": "j.task = :task",
            "after": f"j.id < {_id(words, 'after')}",
        }
        where = " AND ".join(known[name] for name in filters) or "true"
        return f"""
            SELECT {_columns(words, JOB_COLUMNS, "j")} FROM holdfast_jobs j
            WHERE {where} ORDER BY j.id DESC LIMIT :limit"""

    return Statement(f"queries.list_jobs.{'.'.join(filters)}", build)


def _events(words: Words) -> str:
    return f"""
        SELECT {_columns(words, EVENT_COLUMNS, "e")} FROM holdfast_events e
        WHERE e.job_id = {_id(words)} ORDER BY e.seq"""


def _attempts(words: Words) -> str:
    return f"""
        SELECT {_columns(words, ATTEMPT_COLUMNS, "a")} FROM holdfast_attempts a
        WHERE a.job_id = {_id(words)} ORDER BY a.attempt"""


def _refusals(words: Words) -> str:
    return f"""
        SELECT {words.as_text("f.job_id")}, f.attempt, f.verb, f.reason, f.worker, f.first_at, f.last_at, f.count
        FROM holdfast_refusals f
        WHERE {_id(words)} IS NULL OR f.job_id = {_id(words)}
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


def _stuck(words: Words) -> str:
    """Running past its lease and nobody reaps; or due for a while and in a queue that is paused, of a source that
    is closed, of a task that no worker knows, or in a queue that nobody serves. Workers announce their tasks every
    minute or so: one that was not announced for ten is known to nobody. Such a job is left as it is."""
    overdue = f"j.state = 'running' AND j.lease_expires_at < {words.after('-15', words.fixed_now)}"
    waiting = f"{in_states(CLAIMABLE, 'j.state')} AND j.run_after < {words.after('-300', words.fixed_now)}"
    columns = _columns(words, JOB_COLUMNS, "j")
    return f"""
        SELECT * FROM (
          SELECT {columns}, 'its lease expired and nobody reaps' AS reason FROM holdfast_jobs j
          WHERE {overdue} ORDER BY j.queue, j.id LIMIT :limit) expired
        UNION ALL
        SELECT * FROM (
          SELECT {columns}, CASE WHEN q.paused_at IS NOT NULL THEN 'its queue is paused'
                                 WHEN s.enabled IS NOT NULL AND NOT s.enabled THEN 'its source is switched off'
                                 WHEN s.paused_until > {words.fixed_now} THEN 'its source is paused by the breaker'
                                 WHEN t.announced_at IS NULL
                                   OR t.announced_at < {words.after("-600", words.fixed_now)}
                                   THEN 'no worker knows its task'
                                 ELSE 'due for more than five minutes and not claimed' END AS reason
          FROM holdfast_jobs j LEFT JOIN holdfast_queues q ON q.name = j.queue
                               LEFT JOIN holdfast_sources s ON s.name = j.source
                               LEFT JOIN holdfast_tasks t ON t.name = j.task
          WHERE {waiting} ORDER BY j.queue, j.id LIMIT :limit) waiting"""


def _counts(_words: Words) -> str:
    return "SELECT state, count(*) FROM holdfast_jobs GROUP BY state ORDER BY state"


JOB = Statement("queries.job", _job)
EVENTS = Statement("queries.events", _events)
ATTEMPTS = Statement("queries.attempts", _attempts)
REFUSALS = Statement("queries.refusals", _refusals)
QUEUES = Statement("queries.queues", _queues)
STUCK = Statement("queries.stuck", _stuck)
COUNTS = Statement("queries.counts", _counts)
