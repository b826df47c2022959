"""What the worker-side verbs answer, job by job. A lost lease is an answer, not an error."""

from __future__ import annotations

from dataclasses import dataclass, field
from datetime import datetime
from enum import StrEnum

from holdfast.domain.hot import hot_value
from holdfast.domain.job import Claimed
from holdfast.domain.lifecycle import State


class Status(StrEnum):
    APPLIED = "applied"
    REPLAYED = "replayed"  # this very report was applied before: the same answer again
    BUSY = "busy"  # the row is locked by somebody; the lease is still yours, ask again
    REFUSED = "refused"  # you do not hold this lease; nothing was changed


class Reason(StrEnum):
    """Why a verb was refused."""

    LEASE_LOST = "lease_lost"  # the token was right once; the lease has since ended
    CONFLICTING_REPORT = "conflicting_report"  # this lease already reported something else
    UNKNOWN_LEASE = "unknown_lease"  # the token never belonged to this attempt
    UNKNOWN_JOB = "unknown_job"


class Verb(StrEnum):
    HEARTBEAT = "heartbeat"
    COMPLETE = "complete"
    FAIL = "fail"
    RELEASE = "release"
    RECORD = "record"
    SOURCE = "source"


@hot_value(frozen=True, slots=True)
class Settled:
    """The answer to one report."""

    job_id: str
    attempt: int
    status: Status
    event: str | None = None
    state: State | None = None
    reason: Reason | None = None

    @property
    def ok(self) -> bool:
        return self.status in (Status.APPLIED, Status.REPLAYED)


@dataclass(frozen=True, slots=True)
class Brought:
    """The answer to a claim that may have waited: no lease of these began earlier than `late_seconds` after it was
    asked for. `again_in` as `ClaimedJobs` has it."""

    jobs: list[Claimed]
    late_seconds: float = 0.0
    again_in: float | None = None


@dataclass(frozen=True, slots=True)
class Beat:
    """One lease to renew."""

    job_id: str
    attempt: int
    lease_token: str = field(repr=False)
    worker: str | None = None
    progress: object = None
    credential: str = ""  # of whoever claimed, if that was over HTTP
    by_token: bool = False  # the attempt was not told: it is whichever the token is of


@dataclass(frozen=True, slots=True)
class Beaten:
    """The answer to one heartbeat: a fresh expiry, and whether somebody asked for the job to stop."""

    job_id: str
    status: Status
    lease_expires_at: datetime | None = None
    lease_seconds: float | None = None
    cancel: bool = False
    reason: Reason | None = None


class Operated(StrEnum):
    """What an operator's cancel or requeue did to one job."""

    CANCELLED = "cancelled"
    CANCEL_REQUESTED = "cancel_requested"
    REQUEUED = "requeued"
    WRONG_STATE = "wrong_state"
    KEY_TAKEN = "key_taken"
    NOT_FOUND = "not_found"
    BUSY = "busy"


@dataclass(frozen=True, slots=True)
class OperatorAnswer:
    job_id: str
    did: Operated
    state: State | None = None

    @property
    def ok(self) -> bool:
        return self.did in (Operated.CANCELLED, Operated.CANCEL_REQUESTED, Operated.REQUEUED)


@dataclass(frozen=True, slots=True)
class ClockCorrection:
    """What the reaper corrected after the store's clock was set back.

    `seconds` is how far the clock still lies behind the latest time it showed; None if only leases tell of the step.
    """

    seconds: float | None
    leases: int = 0
    jobs: int = 0
    sources: int = 0


@dataclass(frozen=True, slots=True)
class Reaped:
    """One pass of the reaper: what it moved where, or that it was not its turn."""

    ticked: bool
    settled: tuple[Settled, ...] = ()
    clock: ClockCorrection | None = None
