"""The bodies of the worker contract, version 1. What a request does not need to say has a default; names that we do not
know are ignored, because a worker may be newer than its control plane."""

from __future__ import annotations

from datetime import datetime
from typing import Annotated, Any, Literal

from pydantic import BaseModel, ConfigDict, Field

from holdfast.domain.answers import Reason, Status
from holdfast.domain.lifecycle import State
from holdfast.domain.looks import MOST_LOOKS, MOST_SOURCES
from holdfast.domain.names import MAX_NAME

MOST_JOBS = 500
LONGEST_WAIT_MS = 60_000
LARGEST = 2**31 - 1

Name = Annotated[str, Field(min_length=1, max_length=MAX_NAME)]
Secret = Annotated[str, Field(min_length=1, max_length=500, repr=False)]
JobId = Annotated[str, Field(min_length=1, max_length=64, description="A UUID.")]
AttemptId = Annotated[str, Field(min_length=1, max_length=100, description="`<job id>.<attempt>`, as claim gave it.")]
# As text, and in the end as an interval: what no store can hold is refused here.
Seconds = Annotated[float, Field(ge=0, le=10**9, allow_inf_nan=False)]


class Body(BaseModel):
    model_config = ConfigDict(extra="ignore", strict=True)


class Lease(Body):
    """What a worker shows to act on a job it claimed."""

    job_id: JobId
    attempt_id: AttemptId
    lease_token: Secret
    stream: str | None = Field(None, max_length=1_000)
    message_id: str | None = Field(None, max_length=1_000)


# claim


class ClaimRequest(Body):
    worker_id: Name
    # Without a default: a misspelt name must not mean "all of them".
    streams: list[Name] | None = Field(
        min_length=1, max_length=1_000, description="In order of priority; null: all that the token may use."
    )
    max_wait_ms: int = Field(0, ge=0, le=LONGEST_WAIT_MS)
    limit: int | None = Field(None, ge=1, le=MOST_JOBS)
    request_id: Name | None = Field(None, description="Makes the claim safe to send again, to any control plane.")
    tasks: list[Name] | None = Field(None, max_length=10_000, description="Only these; left out: any.")


class ClaimedJob(Body):
    job_id: str
    attempt_id: str
    lease_token: str
    stream: str
    message_id: str | None
    task: str
    payload: dict[str, Any]
    attempt: int
    timeout_seconds: float | None
    traceparent: str | None
    lease_ttl_seconds: float
    heartbeat_interval_seconds: float
    version: str | None
    queue: str
    source: str | None
    failures: int
    crashes: int
    max_attempts: int
    max_crashes: int
    due_seconds: float | None = Field(description="How long the job had been due; null where that is not known.")


class ClaimAnswer(Body):
    """The fields of the first job, or null in each of them; `jobs` where a limit was given."""

    claimed: bool
    job_id: str | None
    attempt_id: str | None
    lease_token: str | None
    stream: str | None
    message_id: str | None
    task: str | None
    payload: dict[str, Any] | None
    attempt: int | None
    timeout_seconds: float | None
    traceparent: str | None
    lease_ttl_seconds: float | None
    heartbeat_interval_seconds: float | None
    version: str | None
    queue: str | None
    source: str | None
    failures: int | None
    crashes: int | None
    max_attempts: int | None
    max_crashes: int | None
    due_seconds: float | None = Field(description="How long the job had been due; null where that is not known.")
    jobs: list[ClaimedJob] | None = None
    waited_ms: int = Field(description="How long the request waited before the claim that answered it began.")
    again_in_seconds: float | None = Field(
        None, description="Nothing was claimed; a limited source that has work waiting may let some in after so long."
    )


# heartbeat


class HeartbeatRequest(Body):
    worker_id: Name
    job_id: JobId
    lease_token: Secret
    progress: Any = None


class BeatItem(Body):
    job_id: JobId
    attempt_id: AttemptId
    lease_token: Secret
    progress: Any = None


class HeartbeatsRequest(Body):
    worker_id: Name
    beats: list[BeatItem] = Field(max_length=MOST_JOBS)


class HeartbeatAnswer(Body):
    ok: bool
    reason: Reason | None
    lease_expires_at: datetime | None
    lease_ttl_seconds: float | None
    cancel: bool


class BeatAnswer(HeartbeatAnswer):
    status: Status


class HeartbeatsAnswer(Body):
    answers: list[BeatAnswer]


# reports


class CompleteRequest(Lease):
    worker_id: Name
    result: Any = Field(description="What the job returns; null for nothing.")


class ErrorBody(Body):
    code: str = Field(max_length=10_000)
    message: str
    stack: str | None = None
    retryable: bool = True


class FailRequest(Lease):
    worker_id: Name
    error: ErrorBody
    told: bool = Field(False, description="Another source was told of it: it does not count for the job's own.")


class ReleaseRequest(Lease):
    worker_id: Name
    delay_seconds: Seconds | None = Field(None, description="With a delay the job is snoozed.")
    throttled: bool = Field(False, description="The job's own source asked for that delay: it is paused for as long.")


class Answer(Body):
    """The same for a report that is sent again."""

    ok: bool
    ack: bool = Field(description="What there was to record has been recorded: do not send it again.")
    event: str | None
    state: State | None
    reason: Reason | None


class FailAnswer(Answer):
    requeued: bool
    dlq: bool


class SucceededBody(Body):
    kind: Literal["succeeded"]
    result: Any = None
    result_ref: str | None = Field(None, max_length=1_000)


class FailedBody(Body):
    kind: Literal["failed"]
    error: ErrorBody
    exit_code: int | None = Field(None, ge=-LARGEST, le=LARGEST)
    told: bool = False


class CrashedBody(Body):
    kind: Literal["crashed"]
    message: str
    exit_code: int | None = Field(None, ge=-LARGEST, le=LARGEST)
    signal: int | None = Field(None, ge=-LARGEST, le=LARGEST)


class ReleasedBody(Body):
    kind: Literal["released"]
    reason: str = "released"


class SnoozedBody(Body):
    kind: Literal["snoozed"]
    delay_seconds: Seconds
    reason: str = "snoozed"
    throttled: bool = False


class CancelledBody(Body):
    kind: Literal["cancelled"]
    reason: str = "cancelled"


OutcomeBody = Annotated[
    SucceededBody | FailedBody | CrashedBody | ReleasedBody | SnoozedBody | CancelledBody,
    Field(discriminator="kind"),
]


class UsageBody(Body):
    duration_ms: int | None = Field(None, ge=0, le=2**53)
    cpu_ms: int | None = Field(None, ge=0, le=2**53)
    max_rss_kb: int | None = Field(None, ge=0, le=2**53)


class ArtifactBody(Body):
    name: str = Field(min_length=1, max_length=1_000)
    media_type: str = Field(min_length=1, max_length=200)
    bytes: int = Field(ge=0, le=2**53)
    sha256: str = Field(min_length=64, max_length=64)


Looks = Annotated[list[Annotated[int, Field(ge=0, le=MOST_LOOKS)]], Field(min_length=2, max_length=2)]


class ReportItem(Lease):
    outcome: OutcomeBody
    usage: UsageBody | None = None
    progress: Any = None
    artifacts: list[ArtifactBody] | None = Field(None, max_length=10_000)
    cache: dict[Name, Looks] | None = Field(
        None, max_length=MOST_SOURCES, description="`{source: [hits, misses]}` in the caches of sources."
    )


class ReportsRequest(Body):
    worker_id: Name
    reports: list[ReportItem] = Field(max_length=MOST_JOBS)


class ReportAnswer(Answer):
    status: Status


class ReportsAnswer(Body):
    answers: list[ReportAnswer]
