"""The bodies of what a remote worker tells besides its jobs."""

from __future__ import annotations

from datetime import datetime
from typing import Annotated, Any, Literal

from pydantic import Field

from holdfast.domain.logs import Stream
from holdfast.domain.manifest import Kind, OnLostLease
from holdfast.domain.names import MAX_NAME
from holdfast.serve.contract.models import LARGEST, Body, JobId, Name

MOST_LINES = 10_000


class LogLineBody(Body):
    job_id: JobId
    attempt: int = Field(ge=0, le=LARGEST)
    number: int = Field(ge=0, le=LARGEST)
    at: Annotated[datetime, Field(strict=False)]
    stream: Annotated[Stream, Field(strict=False)]
    message: str
    level: str | None = None
    fields: dict[str, Any] = Field(default_factory=dict)


class LogsRequest(Body):
    worker_id: Name
    lines: list[LogLineBody] = Field(max_length=MOST_LINES)


class TaskBody(Body):
    name: Name
    version: str | None = Field(None, max_length=MAX_NAME)
    kind: Annotated[Kind, Field(strict=False)] = Kind.SYNC
    on_lost_lease: Annotated[OnLostLease, Field(strict=False)] = OnLostLease.KILL
    defaults: dict[str, Any] = Field(default_factory=dict)


class AnnounceRequest(Body):
    worker_id: Name
    tasks: list[TaskBody] = Field(default_factory=list, max_length=10_000)
    schedules: list[dict[str, Any]] | None = Field(
        None, max_length=10_000, description="Declared anew: each with its name and the fields of a declaration."
    )
    kept: list[dict[str, Any]] = Field(
        default_factory=list, max_length=10_000, description="Schedules declared before, and still."
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
    queues: list[Name] | None = None
    processes: int = Field(1, ge=0, le=LARGEST)
    slots: int = Field(1, ge=0, le=LARGEST)
    running: int = Field(0, ge=0, le=LARGEST)
    version: str | None = Field(None, max_length=MAX_NAME)
    detail: dict[str, Any] = Field(default_factory=dict)


class Accepted(Body):
    ok: Literal[True] = True


class StoreAnswer(Body):
    store_id: str
    contract: Literal[1] = 1
    version: str
