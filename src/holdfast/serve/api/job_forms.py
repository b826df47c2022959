"""A job as a client asks for it. The rules of each value are the domain's (`domain/job.py`)."""

from __future__ import annotations

from typing import Annotated, Any, Literal

from pydantic import Field

from holdfast.domain.job import MAX_BUDGET
from holdfast.domain.names import MAX_PRIORITY
from holdfast.serve.api.values import (
    Form,
    GivenFlag,
    GivenInteger,
    GivenMoment,
    GivenName,
    GivenNumber,
    GivenText,
)

MOST_IN_A_BATCH = 10_000

Budget = Annotated[GivenInteger, Field(ge=1, le=MAX_BUDGET)]
Seconds = Annotated[GivenNumber, Field(gt=0)]
# Nobody can keep a shorter one over HTTP.
LeaseSeconds = Annotated[GivenNumber, Field(ge=1)]
Version = GivenName | Annotated[GivenInteger, Field(ge=-(2**63), lt=2**63, description="kept as text")]


class RetryForm(Form):
    kind: Literal["exponential", "linear", "fixed"] | None = None
    base: Annotated[GivenNumber, Field(ge=0, description="seconds")] | None = None
    jitter: Annotated[GivenNumber, Field(ge=0, le=1)] | None = None
    cap: Annotated[GivenNumber, Field(ge=0, description="seconds")] | None = None
    snooze_limit: (
        Annotated[GivenNumber, Field(ge=0, description="seconds that the snoozes of a job may add up to")] | None
    ) = None


class WebhookForm(Form):
    url: GivenText
    on: list[Literal["succeeded", "failed", "cancelled"]] | None = None


class NewJobForm(Form):
    """What is left out, or null, is as a worker has announced the task, else as usual."""

    task: GivenName
    payload: Annotated[dict[str, Any], Field(description="the task's parameters")] = Field(default_factory=dict)
    queue: GivenName | None = None
    priority: Annotated[GivenInteger, Field(ge=-MAX_PRIORITY, le=MAX_PRIORITY, description="higher first")] | None = (
        None
    )
    run_after: GivenMoment | None = None
    delay_seconds: Annotated[GivenNumber, Field(ge=0, description="instead of run_after")] | None = None
    max_attempts: Annotated[Budget, Field(description="failures and crashes together")] | None = None
    max_crashes: Budget | None = None
    retry: RetryForm | None = None
    timeout_seconds: Seconds | None = None
    lease_seconds: LeaseSeconds | None = None
    version: Version | None = None
    id: (
        Annotated[GivenText, Field(json_schema_extra={"format": "uuid"}, description="makes it safe to ask again")]
        | None
    ) = None
    unique: Annotated[GivenFlag, Field(description="one active job of this task and payload")] | None = None
    unique_key: Annotated[GivenName, Field(description="one active job of this task and key")] | None = None
    reuse_seconds: Annotated[Seconds, Field(description="a success this young is answered instead")] | None = None
    source: GivenName | None = None
    traceparent: GivenName | None = None
    webhook: GivenText | WebhookForm | None = None

    def options(self) -> dict[str, Any]:
        """As `NewJob.from_options` takes them."""
        options = {name: value.given() if isinstance(value, Form) else value for name, value in self.given().items()}
        if "delay_seconds" in options:
            options["delay"] = options.pop("delay_seconds")
        return options


class BatchForm(Form):
    jobs: Annotated[list[NewJobForm], Field(max_length=MOST_IN_A_BATCH)]
