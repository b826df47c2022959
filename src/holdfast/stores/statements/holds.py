"""Holds: the jobs that are inside a source.

A hold counts while that very attempt of its job is running. So no lock on the job is needed to enter: if the lease ends
between the look and the insert, the hold counts for nothing from then on.
"""

from __future__ import annotations

from holdfast.stores.statements.sources import elapsed, in_use
from holdfast.stores.statements.words import Statement, Words

# A job that runs under this lease.
_LEASE = "j.id = {job} AND j.attempt = :attempt AND j.lease_token = :token AND j.state = 'running'"


def _job(words: Words) -> str:
    return "CAST(:job_id AS uuid)" if words.postgres else ":job_id"


def _look(words: Words) -> str:
    """The job of a lease, whether it is inside already, and the source if it is there. Locks nothing."""
    return f"""
        SELECT coalesce(j.source = :source, false),
               EXISTS (SELECT 1 FROM holdfast_source_holds h
                       WHERE h.job_id = j.id AND h.attempt = j.attempt AND h.number = :number),
               EXISTS (SELECT 1 FROM holdfast_sources s WHERE s.name = :source)
        FROM holdfast_jobs j WHERE {_LEASE.format(job=_job(words))}"""


def _door(words: Words) -> str:
    return f"""
        SELECT s.enabled, s.max_concurrent, s.rate_limit_per_minute, s.burst, s.bucket_level, {elapsed(words)},
               s.failure_streak, s.breaker_threshold, s.paused_until, s.paused_by, {words.now}"""


def _glance(words: Words) -> str:
    return f"{_door(words)}, {in_use('s.name')} FROM holdfast_sources s WHERE s.name = :source"


def _lock(words: Words) -> str:
    lock = "FOR NO KEY UPDATE OF s SKIP LOCKED" if words.postgres else ""
    return f"{_door(words)} FROM holdfast_sources s WHERE s.name = :source {lock}"


def _insert(words: Words) -> str:
    own = "CAST(:own AS boolean)" if words.postgres else ":own"
    return f"""
        INSERT INTO holdfast_source_holds (job_id, attempt, number, source, own, at)
        VALUES ({_job(words)}, :attempt, :number, :source, {own}, {words.now})
        ON CONFLICT (job_id, attempt, number) DO NOTHING RETURNING number"""


def _spend(words: Words) -> str:
    level = "CAST(:level AS float8)" if words.postgres else ":level"
    return f"UPDATE holdfast_sources SET bucket_level = {level}, bucket_at = {words.now} WHERE name = :source"


def _leave(words: Words) -> str:
    own = "h.own" if words.postgres else "own"
    return f"""
        DELETE FROM holdfast_source_holds AS h
        WHERE h.job_id = {_job(words)} AND h.attempt = :attempt AND h.number = :number AND h.source = :source
        RETURNING {own}"""


def _forget(words: Words, which: str) -> str:
    """Those of attempts that are over. What somebody else is about to delete is left to them."""
    lock = "FOR UPDATE OF h SKIP LOCKED" if words.postgres else ""
    return f"""
        DELETE FROM holdfast_source_holds WHERE (job_id, attempt, number) IN (
          SELECT h.job_id, h.attempt, h.number FROM holdfast_source_holds h
          WHERE {which} NOT EXISTS (SELECT 1 FROM holdfast_jobs j
                                    WHERE j.id = h.job_id AND j.attempt = h.attempt AND j.state = 'running')
          LIMIT :limit {lock})
        RETURNING number"""


LOOK = Statement("holds.look", _look)
GLANCE = Statement("holds.glance", _glance)
LOCK = Statement("holds.lock", _lock)
IN_USE = Statement("holds.in_use", lambda _words: f"SELECT {in_use(':source')}")
INSERT = Statement("holds.insert", _insert)
SPEND = Statement("holds.spend", _spend)
LEAVE = Statement("holds.leave", _leave)
FORGET = Statement("holds.forget", lambda words: _forget(words, ""))
FORGET_OF = Statement("holds.forget_of", lambda words: _forget(words, "h.source = :source AND"))
