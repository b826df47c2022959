"""Look into the leases whose verb changed no row: still ours but locked, said before, or lost."""

from __future__ import annotations

import json
from collections.abc import Iterable, Sequence
from dataclasses import dataclass, field

from holdfast.domain.answers import Reason, Verb
from holdfast.stores.database import Transaction
from holdfast.stores.statements import lost as sql


@dataclass(frozen=True, slots=True)
class Ended:
    """The recorded outcome of an attempt."""

    event: str
    state: str
    lease: str | None
    report: str | None


@dataclass(slots=True)
class Known:
    """What the store knows of the jobs in question."""

    exists: set[str] = field(default_factory=set)
    current: dict[str, tuple[int, str]] = field(default_factory=dict)  # running: attempt and token digest
    claims: dict[tuple[str, int], str] = field(default_factory=dict)
    endings: dict[tuple[str, int], Ended] = field(default_factory=dict)

    def holds(self, job_id: str, attempt: int, digest: str) -> bool:
        return self.current.get(job_id) == (attempt, digest)

    def attempt_of(self, job_id: str, digest: str) -> int:
        """The attempt that this lease was given for; that of nobody if it never was."""
        known = (attempt for (job, attempt), lease in self.claims.items() if (job, lease) == (job_id, digest))
        return next(known, 0)

    def lease_reason(self, job_id: str, attempt: int, digest: str) -> Reason:
        """Why whoever shows this token does not hold the job."""
        if job_id not in self.exists and not any(key[0] == job_id for key in self.claims):
            return Reason.UNKNOWN_JOB
        if self.claims.get((job_id, attempt)) != digest:
            return Reason.UNKNOWN_LEASE
        return Reason.LEASE_LOST

    def report_reason(self, job_id: str, attempt: int, digest: str) -> Reason:
        reason = self.lease_reason(job_id, attempt, digest)
        ended = self.endings.get((job_id, attempt))
        # The holder's own report ended it, and this one says something else; the reaper leaves no report digest.
        if reason is Reason.LEASE_LOST and ended is not None and ended.report is not None:
            return Reason.CONFLICTING_REPORT
        return reason


@dataclass(frozen=True, slots=True)
class Refused:
    job_id: str
    attempt: int
    verb: Verb
    reason: Reason
    worker: str | None


def look_into(transaction: Transaction, job_ids: Iterable[str]) -> Known:
    ids = json.dumps(sorted(set(job_ids)))
    known = Known()
    for job_id, state, attempt, digest in transaction.rows(sql.PRESENT, {"ids": ids}):
        known.exists.add(job_id)
        if state == "running":
            known.current[job_id] = (attempt, digest)
    for job_id, attempt, event, to_state, lease, report in transaction.rows(sql.PAST, {"ids": ids}):
        if event == "claimed":
            known.claims[job_id, attempt] = lease
        else:
            known.endings[job_id, attempt] = Ended(event, to_state, lease, report)
    return known


def record(transaction: Transaction, refused: Sequence[Refused]) -> None:
    if refused:
        rows = [
            {"job_id": r.job_id, "attempt": r.attempt, "verb": r.verb, "reason": r.reason, "worker": r.worker}
            for r in refused
        ]
        transaction.run(sql.REFUSE, {"rows": json.dumps(rows)})
