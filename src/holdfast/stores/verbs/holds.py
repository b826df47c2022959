"""Entering and leaving sources from inside a job.

Who may not enter is told so by a look that locks nothing, so that many who wait are in nobody's way. Who may takes the
source's row, and then everything is counted once more on a fresh snapshot: that answer is the one that holds. The row
is asked for with SKIP LOCKED, twice; after that the answer is "busy", ask again: whoever serves many has no time to
wait for one.

An entry is named by its attempt and number: asking twice enters once, and pays once, also when the second question
arrives after the entry was left. What was prepaid is an attempt's first entry of its own source, and no other.
"""

from __future__ import annotations

import time
from typing import Any, assert_never

from holdfast.domain import digests, durations
from holdfast.domain.admission import SourceStanding
from holdfast.domain.answers import Beat, Verb
from holdfast.domain.breaker import Ending, Failure, Standing, Success, Throttled
from holdfast.domain.entering import ADMITTED, BUSY, Door
from holdfast.domain.errors import InvalidInput, LeaseLost, StoreUnavailable
from holdfast.domain.names import MAX_NAME, check_id, check_integer, check_name, storable_text
from holdfast.domain.sources import End, Entered, Entry, Leaving, understood
from holdfast.stores import rows
from holdfast.stores.database import Database, Row, Transaction
from holdfast.stores.statements import holds as sql
from holdfast.stores.verbs.breaker import settle_sources, who_paused
from holdfast.stores.verbs.proving import check_lease

PATIENCE_SECONDS = 0.25  # of who leaves: what is told then is told once
PAUSE_SECONDS = 0.002
STALE_AT_ONCE = 100
THINNED_OUT_EVERY = 1_000
MOST_AT_ONCE = 10_000


def enter(database: Database, lease: Beat, entry: Entry) -> Entered:
    given = _named(lease, entry.source, entry.number)
    with database.reading() as transaction:
        found = transaction.rows(sql.LOOK, given)
    if not found:
        raise _lost(database, lease, entry.source)
    own, entered_before, inside, has_left, exists = map(bool, found[0])
    if has_left:
        raise InvalidInput("number", f"entry {entry.number} of this attempt was left; every entry has its own number")
    if inside or not exists:
        return ADMITTED
    if own and entry.prepaid and not entered_before:
        with database.statement() as transaction:
            transaction.rows(sql.INSERT, {**given, "own": True})
        return ADMITTED
    with database.reading() as transaction:
        glance = transaction.rows(sql.GLANCE, {**given, "own": own})
    if not glance:  # somebody has just deleted it
        return ADMITTED
    *door, in_use, probes = glance[0]
    likely = _door(door, entry.source).may_enter(in_use, probes, own=own)
    if not likely.admitted:
        return likely
    with database.transaction() as transaction:
        return _enter_locked(transaction, given, own)


def _enter_locked(transaction: Transaction, given: dict[str, Any], own: bool) -> Entered:
    source = given["source"]
    found = transaction.rows(sql.LOCK, {"source": source})
    if not found:
        time.sleep(PAUSE_SECONDS)
        found = transaction.rows(sql.LOCK, {"source": source})
    if not found:
        return BUSY
    transaction.rows(sql.FORGET_OF, {"source": source, "limit": STALE_AT_ONCE})
    [[in_use, probes]] = transaction.rows(sql.USED, {**given, "own": own})
    answer = _door(found[0], source).may_enter(in_use, probes, own=own)
    if answer.admitted and transaction.rows(sql.INSERT, {**given, "own": own}):
        transaction.run(sql.SPEND, {"source": source})
    return answer


def leave(database: Database, lease: Beat, leaving: Leaving) -> None:
    given = _named(lease, leaving.source, leaving.number)
    ending = _ending(leaving, given["job_id"])
    with database.transaction() as transaction:
        held = bool(transaction.rows(sql.LOOK, given))
        left = _leave(transaction, given) if held else []
        # The job's own source hears of it when the job ends; only what it asked of us cannot wait for that.
        if left and ending is not None and (not left[0][0] or isinstance(ending, Throttled)):
            settle_sources(transaction, {leaving.source: [ending]}, patience=PATIENCE_SECONDS)
    if not held:
        raise _lost(database, lease, leaving.source)


def _leave(transaction: Transaction, given: dict[str, Any]) -> list[Row]:
    left = transaction.rows(sql.LEAVE, given)
    if not left:
        transaction.run(sql.LEAVE_AHEAD, given)
    if given["number"] % THINNED_OUT_EVERY == 0:
        transaction.run(sql.THIN_OUT, {**given, "below": given["number"] - THINNED_OUT_EVERY})
    return left


def forget(database: Database, limit: int) -> int:
    check_integer(limit, "limit", 1, MOST_AT_ONCE)
    with database.statement() as transaction:
        return len(transaction.rows(sql.FORGET, {"limit": limit}))


def _ending(leaving: Leaving, job_id: str) -> Ending | None:
    if leaving.end not in set(End):
        raise InvalidInput("end", f"must be one of {', '.join(End)}, got {str(leaving.end)[:40]!r}")
    match End(leaving.end):
        case End.SUCCEEDED:
            return Success()
        case End.FAILED:
            return Failure(storable_text(leaving.code, MAX_NAME), bool(leaving.retryable), job_id)
        case End.THROTTLED:
            return Throttled(durations.seconds(leaving.retry_after, "retry_after"), job_id)
        case End.NOTHING:
            return None
        case _ as never:
            assert_never(never)


def _named(lease: Beat, source: str, number: int) -> dict[str, Any]:
    return {
        "job_id": check_id(lease.job_id, "job_id"),
        "attempt": check_integer(lease.attempt, "attempt", 0, 2**31 - 1),
        "token": digests.token_digest(lease.lease_token, lease.credential),
        "source": check_name(source, "source"),
        "number": check_integer(number, "number", 0, 2**31 - 1),
    }


def _lost(database: Database, lease: Beat, source: str) -> Exception:
    reason = check_lease(database, lease, Verb.SOURCE)
    if reason is None:  # cannot be: nobody gets back a lease that was gone
        return StoreUnavailable(f"source {source}: the lease of job {lease.job_id} could not be read; ask again")
    return LeaseLost(
        f"job {lease.job_id}, attempt {lease.attempt}: the lease is no longer its own ({reason}), and source {source}"
        " is only for who holds one; stop, because the job is or will be run by somebody else"
    )


def _door(row: Row, source: str) -> Door:
    enabled, most, rate, burst, level, elapsed, streak, threshold, paused, by, now = row
    moment = rows.moment(now)
    assert moment is not None
    limits = SourceStanding(
        name=source,
        max_concurrent=understood("max_concurrent", most),
        rate_limit_per_minute=understood("rate_limit_per_minute", rate),
        burst=understood("burst", burst),
        bucket_level=understood("bucket_level", level),
        seconds_since=elapsed or 0.0,
        half_open=False,
    )
    standing = Standing(understood("failure_streak", streak), rows.some_moment(paused), who_paused(by))
    return Door(bool(enabled), limits, standing, understood("breaker_threshold", threshold), moment)
