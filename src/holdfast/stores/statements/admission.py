"""Limits of sources and queues, applied before the lease.

A governed claim is one transaction: lock the limited rows first (in name order, skipping those that another claim has:
it will serve them), then count what runs and claim on fresh snapshots. Counting and claiming without the lock, in one
READ COMMITTED statement, breaks a limit of 1 almost every second time.
"""

from __future__ import annotations

from holdfast.domain.lifecycle import CLAIMABLE
from holdfast.stores.schema import in_states
from holdfast.stores.statements.words import Statement, Words


def _any_limits(_words: Words) -> str:
    return """
        SELECT EXISTS (SELECT 1 FROM holdfast_sources)
            OR EXISTS (SELECT 1 FROM holdfast_queues WHERE max_running IS NOT NULL)"""


def _elapsed(words: Words) -> str:
    if words.postgres:
        return f"CAST(extract(epoch FROM {words.fixed_now} - s.bucket_at) AS float8)"
    # To the microsecond, which SQLite's own date arithmetic is not: whole seconds and fractions by themselves.
    whole = "strftime('%s', :now) - strftime('%s', s.bucket_at)"
    return f"({whole} + (substr(:now, 21, 6) - substr(s.bucket_at, 21, 6)) / 1000000.0)"


def _lock_sources(words: Words, waiting: str) -> str:
    """Only what this claim could use: a source locked for nothing is one that another claim has to pass over."""
    lock = "FOR NO KEY UPDATE OF s SKIP LOCKED" if words.postgres else ""
    return f"""
        SELECT s.name, s.max_concurrent, s.rate_limit_per_minute, s.burst, s.bucket_level, {_elapsed(words)},
               s.failure_streak >= s.breaker_threshold
        FROM holdfast_sources s
        WHERE s.enabled AND (s.paused_until IS NULL OR s.paused_until <= {words.fixed_now})
          AND (s.max_concurrent IS NULL OR s.max_concurrent > 0)
          AND EXISTS (SELECT 1 FROM holdfast_jobs j WHERE j.source = s.name AND j.source IS NOT NULL
                      AND {in_states(CLAIMABLE, "j.state")} {waiting})
        ORDER BY s.name {lock}"""


def _lock_queues(words: Words, which: str) -> str:
    lock = "FOR NO KEY UPDATE OF q SKIP LOCKED" if words.postgres else ""
    return f"""
        SELECT q.name, q.max_running FROM holdfast_queues q
        WHERE q.max_running > 0 AND q.paused_at IS NULL {which}
        ORDER BY q.name {lock}"""


def _names(words: Words, parameter: str = "names") -> str:
    return f"json_array_elements_text(CAST(:{parameter} AS json))" if words.postgres else f"json_each(:{parameter})"


def _due_in_queues(words: Words) -> str:
    names = f"SELECT value FROM {_names(words, 'queues')}"
    some = f"= ANY (ARRAY({names}))" if words.postgres else f"IN ({names})"
    return f"AND j.queue {some} AND j.run_after <= {words.fixed_now}"


def _among_queues(words: Words) -> str:
    return f"AND q.name IN (SELECT value FROM {_names(words, 'queues')})"


def _running_by_source(words: Words) -> str:
    return f"""
        SELECT j.source, count(*) FROM holdfast_jobs j
        WHERE j.state = 'running' AND j.source IS NOT NULL AND j.source IN (SELECT value FROM {_names(words)})
        GROUP BY j.source"""


def _running_by_queue(words: Words) -> str:
    return f"""
        SELECT j.queue, count(*) FROM holdfast_jobs j
        WHERE j.state = 'running' AND j.queue IN (SELECT value FROM {_names(words)})
        GROUP BY j.queue"""


def _spend(words: Words) -> str:
    rows = words.rows({"name": "text", "level": "float8"})
    return f"""
        UPDATE holdfast_sources AS s SET bucket_level = r.level, bucket_at = {words.now}
        FROM {rows} WHERE s.name = r.name"""


ANY_LIMITS = Statement("admission.any_limits", _any_limits)
LOCK_SOURCES = Statement(
    "admission.lock_sources", lambda words: _lock_sources(words, _due_in_queues(words)), replan=True
)
LOCK_ALL_SOURCES = Statement("admission.lock_all_sources", lambda words: _lock_sources(words, ""), replan=True)
LOCK_QUEUES = Statement("admission.lock_queues", lambda words: _lock_queues(words, _among_queues(words)))
LOCK_ALL_QUEUES = Statement("admission.lock_all_queues", lambda words: _lock_queues(words, ""))
RUNNING_BY_SOURCE = Statement("admission.running_by_source", _running_by_source)
RUNNING_BY_QUEUE = Statement("admission.running_by_queue", _running_by_queue)
SPEND = Statement("admission.spend", _spend)
