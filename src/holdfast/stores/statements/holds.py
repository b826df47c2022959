"""Holds: the jobs that are inside a source.

A hold counts while that very attempt of its job is running. So no lock on the job is needed to enter: if the lease ends
between the look and the insert, the hold counts for nothing from then on.

A hold that was left stays, and counts for nothing, until its attempt is over: an old question that arrives late finds
it, and enters nothing. Also what leaves before it has entered is left.
"""

from __future__ import annotations

from holdfast.domain.lifecycle import State
from holdfast.stores.schema import still_in
from holdfast.stores.statements.admission import counted, level
from holdfast.stores.statements.batches import delete_batch
from holdfast.stores.statements.sources import elapsed, readable
from holdfast.stores.statements.words import Statement, Words

# A job that runs under this lease.
_LEASE = f"j.id = {{job}} AND j.attempt = :attempt AND j.lease_token = :token AND {still_in(State.RUNNING)}"


def _job(words: Words) -> str:
    return words.id("job_id")


def _look(words: Words) -> str:
    """The job of a lease; whether the source is its own, and was entered as that before; whether it is inside already,
    or has left; and whether there is such a source. Locks nothing."""
    entries = "SELECT 1 FROM holdfast_source_holds h WHERE h.job_id = j.id AND h.attempt = j.attempt"
    return f"""
        SELECT coalesce(j.source = :source, false), EXISTS ({entries} AND h.own),
               EXISTS ({entries} AND h.number = :number AND h.left_at IS NULL),
               EXISTS ({entries} AND h.number = :number AND h.left_at IS NOT NULL),
               EXISTS (SELECT 1 FROM holdfast_sources s WHERE s.name = :source)
        FROM holdfast_jobs j WHERE {_LEASE.format(job=_job(words))}"""


def _door(words: Words) -> str:
    return f"""
        SELECT s.enabled, s.max_concurrent, s.rate_limit_per_minute, s.burst, s.bucket_level, {elapsed(words)},
               s.failure_streak, s.breaker_threshold, {readable(words, "s.paused_until")}, s.paused_by, {words.now}"""


def _used(words: Words) -> str:
    """In use, and the probes of a breaker that is half open. A job is no probe in its own way (`own`)."""
    own = "CAST(:own AS boolean)" if words.postgres else ":own"
    another = f"NOT ({own} AND r.id = {_job(words)})"
    return f"{counted(another)} FROM holdfast_sources s WHERE s.name = :source"


def _glance(words: Words) -> str:
    return f"{_door(words)}, {_used(words)}"


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
    """The level at one moment and that moment: no stretch of time counts twice, and none is lost."""
    most = "greatest" if words.postgres else "max"
    left = f"coalesce({level(words, 'clock.now')}, 1) - 1"
    return f"""
        UPDATE holdfast_sources AS s SET bucket_level = {most}({left}, 0), bucket_at = clock.now
        FROM (SELECT {words.now} AS now) AS clock WHERE s.name = :source AND s.rate_limit_per_minute IS NOT NULL"""


def _leave(words: Words) -> str:
    own = "h.own" if words.postgres else "own"
    return f"""
        UPDATE holdfast_source_holds AS h SET left_at = {words.now}
        WHERE h.job_id = {_job(words)} AND h.attempt = :attempt AND h.number = :number AND h.source = :source
          AND h.left_at IS NULL
        RETURNING {own}"""


def _leave_ahead(words: Words) -> str:
    """What has not entered yet. Of a source that has no row nothing is kept."""
    return f"""
        INSERT INTO holdfast_source_holds (job_id, attempt, number, source, at, left_at)
        SELECT {_job(words)}, :attempt, :number, s.name, {words.now}, {words.now}
        FROM holdfast_sources s WHERE s.name = :source
        ON CONFLICT (job_id, attempt, number) DO NOTHING"""


def _thin_out(words: Words) -> str:
    """Of a job that enters again and again just the last ones stay, and the first that was its own: it was prepaid."""
    return f"""
        DELETE FROM holdfast_source_holds
        WHERE job_id = {_job(words)} AND attempt = :attempt AND left_at IS NOT NULL AND number < :below
          AND (NOT own OR EXISTS (
            SELECT 1 FROM holdfast_source_holds earlier
            WHERE earlier.job_id = holdfast_source_holds.job_id AND earlier.attempt = holdfast_source_holds.attempt
              AND earlier.own AND earlier.number < holdfast_source_holds.number))"""


def _forget(words: Words, which: str) -> str:
    """Those of attempts that are over. What somebody else is about to delete is left to them."""
    lock = "FOR UPDATE OF h SKIP LOCKED" if words.postgres else ""
    chosen = f"""
          SELECT h.job_id, h.attempt, h.number FROM holdfast_source_holds h
          WHERE {which} NOT EXISTS (SELECT 1 FROM holdfast_jobs j
                                    WHERE j.id = h.job_id AND j.attempt = h.attempt AND {still_in(State.RUNNING)})
          LIMIT :limit {lock}"""
    return delete_batch("holdfast_source_holds", "job_id, attempt, number", chosen)


LOOK = Statement("holds.look", _look)
GLANCE = Statement("holds.glance", _glance)
LOCK = Statement("holds.lock", _lock)
USED = Statement("holds.used", lambda words: f"SELECT {_used(words)}")
INSERT = Statement("holds.insert", _insert)
SPEND = Statement("holds.spend", _spend)
LEAVE = Statement("holds.leave", _leave)
LEAVE_AHEAD = Statement("holds.leave_ahead", _leave_ahead)
THIN_OUT = Statement("holds.thin_out", _thin_out)
FORGET = Statement("holds.forget", lambda words: _forget(words, ""))
FORGET_OF = Statement("holds.forget_of", lambda words: _forget(words, "h.source = :source AND h.left_at IS NULL AND"))
