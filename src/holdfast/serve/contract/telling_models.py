"""The bodies of what a remote worker tells besides its jobs."""

from __future__ import annotations

from datetime import UTC, datetime
from typing import Annotated, Any, Literal

from pydantic import AfterValidator, BeforeValidator, Field

from holdfast.domain.logs import Stream
from holdfast.domain.manifest import Kind, OnLostLease
from holdfast.domain.names import MAX_NAME
from holdfast.domain.spec import encode_json
from holdfast.serve.contract.models import LARGEST, AttemptId, Body, JobId, Name, Secret

MOST_LINES = 10_000
MOST_DETAIL_BYTES = 16 * 1024
# A day and more from what a store or a reader in another zone can hold.
EARLIEST, LATEST = datetime(1970, 1, 1, tzinfo=UTC), datetime(9999, 1, 1, tzinfo=UTC)


def _text(value: Any) -> Any:
    if not isinstance(value, str) or "T" not in value.upper():  # digits would be taken for seconds since 1970
        raise ValueError("must be a time as text, such as 2026-01-01T12:00:00Z")
    return value


def _in_utc(value: datetime) -> datetime:
    if value.tzinfo is None:
        raise ValueError("must carry a time zone")
    if not EARLIEST <= value < LATEST:
        raise ValueError("must be from 1970 on and before the year 9999")
    return value.astimezone(UTC)


def _bounded(value: dict[str, Any]) -> dict[str, Any]:
    if len(encode_json(value).encode()) > MOST_DETAIL_BYTES:
        raise ValueError(f"must be at most {MOST_DETAIL_BYTES:,} bytes of JSON")
    return value


Moment = Annotated[datetime, Field(strict=False), BeforeValidator(_text), AfterValidator(_in_utc)]


class LogLineBody(Body):
    job_id: JobId
    attempt: int = Field(ge=0, le=LARGEST)
    number: int = Field(ge=0, le=LARGEST)
    at: Moment
    stream: Annotated[Stream, Field(strict=False)]
    message: str
    level: str | None = None
    fields: dict[str, Any] = Field(default_factory=dict)


class ShownLease(Body):
    """A lease as claim gave it, whether or not it is over."""

    attempt_id: AttemptId
    lease_token: Secret


class LogsRequest(Body):
    worker_id: Name
    lines: list[LogLineBody] = Field(max_length=MOST_LINES)
    leases: list[ShownLease] = Field(
        default_factory=list, max_length=MOST_LINES, description="One for each attempt that has lines."
    )


class TaskBody(Body):
    name: Name
    version: str | None = Field(None, max_length=MAX_NAME)
    kind: Annotated[Kind, Field(strict=False)] = Kind.SYNC
    on_lost_lease: Annotated[OnLostLease, Field(strict=False)] = OnLostLease.KILL
    defaults: dict[str, Any] = Field(default_factory=dict)


class SourceBody(Body):
    name: Name
    limits: dict[str, Any] = Field(default_factory=dict, description="As `PUT /api/v1/sources/{name}` takes them.")


class AnnounceRequest(Body):
    worker_id: Name
    tasks: list[TaskBody] = Field(default_factory=list, max_length=10_000)
    schedules: list[dict[str, Any]] | None = Field(
        None, max_length=10_000, description="Declared anew: each with its name and the fields of a declaration."
    )
    kept: list[dict[str, Any]] = Field(
        default_factory=list, max_length=10_000, description="Schedules declared before, and still."
    )
    sources: list[SourceBody] = Field(
        default_factory=list, max_length=1_000, description="Sources and the limits that the code declares for them."
    )


class ScheduleFailureBody(Body):
    schedule: str
    message: str


class AnnounceAnswer(Body):
    failures: list[ScheduleFailureBody]


class WorkerBody(Body):
    """The row of a worker that people look at."""

    id: Name
    host: str = Field(max_length=1_000)
    pid: int = Field(ge=0, le=LARGEST)
    state: Name
    app: str | None = Field(None, max_length=MAX_NAME)
    queues: list[Name] | None = Field(None, max_length=1_000)
    processes: int = Field(1, ge=0, le=LARGEST)
    slots: int = Field(1, ge=0, le=LARGEST)
    running: int = Field(0, ge=0, le=LARGEST)
    version: str | None = Field(None, max_length=MAX_NAME)
    detail: Annotated[dict[str, Any], AfterValidator(_bounded)] = Field(default_factory=dict)


class Accepted(Body):
    ok: Literal[True] = True


class StoreAnswer(Body):
    store_id: str
    contract: Literal[1] = 1
    version: str
