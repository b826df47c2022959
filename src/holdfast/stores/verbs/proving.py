"""Whether somebody who shows a lease was ever given it, or holds it now. What runs under a lease speaks after its end,
too: the last log lines of a job come behind its report."""

from __future__ import annotations

from collections.abc import Sequence

from holdfast.domain.answers import Beat, Reason, Verb
from holdfast.domain.digests import token_digest
from holdfast.domain.names import MAX_NAME, check_id, storable_text
from holdfast.stores.database import Database
from holdfast.stores.verbs import lost


def lease_reasons(database: Database, shown: Sequence[Beat]) -> list[Reason | None]:
    """None for a lease that was given, whether or not it is over; else why it is none."""
    if not shown:
        return []
    with database.reading() as transaction:
        known = lost.look_into(transaction, (check_id(lease.job_id, "job_id") for lease in shown))
    return [_reason(known, lease) for lease in shown]


def check_lease(database: Database, lease: Beat, verb: Verb) -> Reason | None:
    """None while it is held, also where somebody has its row locked; else why not, and that is on record."""
    job_id = check_id(lease.job_id, "job_id")
    digest = token_digest(lease.lease_token, lease.credential)
    with database.reading() as transaction:
        known = lost.look_into(transaction, [job_id])
    if known.holds(job_id, lease.attempt, digest):
        return None
    reason = known.lease_reason(job_id, lease.attempt, digest)
    worker = None if lease.worker is None else storable_text(lease.worker, MAX_NAME)
    with database.transaction() as transaction:
        lost.record(transaction, [lost.Refused(job_id, lease.attempt, verb, reason, worker)])
    return reason


def _reason(known: lost.Known, lease: Beat) -> Reason | None:
    reason = known.lease_reason(lease.job_id, lease.attempt, token_digest(lease.lease_token, lease.credential))
    return None if reason is Reason.LEASE_LOST else reason
