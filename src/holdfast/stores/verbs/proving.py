"""Whether somebody who shows a lease was ever given it. What runs under a lease speaks after its end, too: the last log
lines of a job come behind its report."""

from __future__ import annotations

from collections.abc import Sequence

from holdfast.domain.answers import Beat, Reason
from holdfast.domain.digests import token_digest
from holdfast.domain.names import check_id
from holdfast.stores.database import Database
from holdfast.stores.verbs import lost


def lease_reasons(database: Database, shown: Sequence[Beat]) -> list[Reason | None]:
    """None for a lease that was given, whether or not it is over; else why it is none."""
    if not shown:
        return []
    with database.reading() as transaction:
        known = lost.look_into(transaction, (check_id(lease.job_id, "job_id") for lease in shown))
    return [_reason(known, lease) for lease in shown]


def _reason(known: lost.Known, lease: Beat) -> Reason | None:
    reason = known.lease_reason(lease.job_id, lease.attempt, token_digest(lease.lease_token, lease.credential))
    return None if reason is Reason.LEASE_LOST else reason
