"""What the span of an attempt says, however it ended; and the provider that a command sets up for itself."""

from __future__ import annotations

import pytest
from opentelemetry.sdk.trace import ReadableSpan, TracerProvider
from opentelemetry.sdk.trace.export import SimpleSpanProcessor
from opentelemetry.sdk.trace.export.in_memory_span_exporter import InMemorySpanExporter
from opentelemetry.trace import StatusCode

from holdfast.domain.answers import Reason, Settled, Status
from holdfast.domain.outcome import Cancelled, Crashed, Failed, JobError, Outcome, Released, Succeeded
from holdfast.observe import traces_setup
from holdfast.observe.traces import LONGEST_STACK, AttemptSpan, OpenTelemetry
from holdfast.tasks.context import JobInfo

JOB = JobInfo(id="01a1e6c9-917e-713c-bfae-3fa215301e07", task="add")
APPLIED, REFUSED = Status.APPLIED, Status.REFUSED
ERROR, UNSET = StatusCode.ERROR, StatusCode.UNSET


class Attempts:
    def __init__(self) -> None:
        self.exporter = InMemorySpanExporter()
        self.provider = TracerProvider()
        self.provider.add_span_processor(SimpleSpanProcessor(self.exporter))

    def begin(self, due_seconds: float | None = None) -> AttemptSpan:
        return OpenTelemetry(self.provider).attempt(JOB, "ann", due_seconds)

    def only(self) -> ReadableSpan:
        [span] = self.exporter.get_finished_spans()
        return span


@pytest.fixture
def attempts() -> Attempts:
    return Attempts()


def settled(status: Status, event: str | None = None, reason: Reason | None = None) -> Settled:
    return Settled(JOB.id, 1, status, event, None, reason)


@pytest.mark.parametrize(
    ("outcome", "answer", "status", "error"),
    [
        (Succeeded(), settled(APPLIED, "succeeded"), UNSET, None),
        (Succeeded(), None, UNSET, None),
        (Succeeded(), settled(APPLIED, "retry_scheduled"), ERROR, "retry_scheduled"),  # its transaction rolled back
        (Failed(JobError("KeyError", "x")), settled(APPLIED, "succeeded"), UNSET, None),  # after it had committed
        (Failed(JobError("KeyError", "x")), settled(APPLIED, "failed"), ERROR, "KeyError"),
        (Crashed("gone", signal=9), settled(APPLIED, "crashed"), ERROR, "crashed"),
        (Cancelled("asked"), settled(APPLIED, "cancelled"), UNSET, None),
        (Released("stopping"), settled(APPLIED, "released"), UNSET, None),
        (Succeeded(), settled(REFUSED, reason=Reason.LEASE_LOST), ERROR, "lease_lost"),
    ],
)
def test_its_status(
    attempts: Attempts, outcome: Outcome, answer: Settled | None, status: StatusCode, error: str | None
) -> None:
    attempts.begin().ended(outcome, answer)
    span = attempts.only()
    assert (span.status.status_code, (span.attributes or {}).get("error.type")) == (status, error)


def test_a_lease_that_was_lost_is_an_error_whatever_is_said_afterwards(attempts: Attempts) -> None:
    attempt = attempts.begin()
    attempt.started()
    attempt.lost("it could not be confirmed in time")
    attempt.ended(Released("the lease could not be confirmed in time"), settled(APPLIED, "released"))
    attempt.dropped()
    span = attempts.only()
    assert (span.status.status_code, [event.name for event in span.events]) == (ERROR, ["started", "lease_lost"])


def test_an_attempt_that_nobody_reports_has_an_end_too(attempts: Attempts) -> None:
    attempts.begin().dropped()
    assert (attempts.only().attributes or {})["holdfast.outcome"] == "lease_lost"


def test_the_wait_ends_where_the_attempt_begins(attempts: Attempts) -> None:
    attempts.begin(due_seconds=2.5).ended(Succeeded())
    wait, attempt = attempts.exporter.get_finished_spans()
    assert wait.start_time is not None
    assert wait.end_time == attempt.start_time == wait.start_time + 2_500_000_000


def test_processes_that_never_spoke_put_a_job_into_the_same_trace() -> None:
    first, second = Attempts(), Attempts()
    for attempts in (first, second):
        attempts.begin().ended(Succeeded())
    assert first.only().context.trace_id == second.only().context.trace_id
    assert first.only().context.span_id != second.only().context.span_id


def test_a_stack_is_cut_to_its_end(attempts: Attempts) -> None:
    stack = "begin" + "x" * LONGEST_STACK + "end"
    attempts.begin().ended(Failed(JobError("KeyError", "m" * 10_000, stack)))
    [event] = attempts.only().events
    told = dict(event.attributes or {})
    assert str(told["exception.stacktrace"]).endswith("end")
    assert (len(str(told["exception.stacktrace"])), len(str(told["exception.message"]))) == (LONGEST_STACK, 1_000)


@pytest.mark.parametrize(
    ("environment", "said"),
    [
        ({"OTEL_TRACES_EXPORTER": "zipkin"}, "OTEL_TRACES_EXPORTER=zipkin is not known here: otlp, console or none"),
        ({"OTEL_EXPORTER_OTLP_PROTOCOL": "grpc"}, "set OTEL_EXPORTER_OTLP_PROTOCOL=http/protobuf"),
        ({"OTEL_SPAN_ATTRIBUTE_COUNT_LIMIT": "many"}, "the environment asks for traces, and they are off (ValueError"),
    ],
)
def test_what_cannot_be_exported_is_said_and_stops_nothing(
    monkeypatch: pytest.MonkeyPatch, environment: dict[str, str], said: str
) -> None:
    for name, value in environment.items():
        monkeypatch.setenv(name, value)
    told: list[str] = []
    traces_setup.begin("holdfast-test", told.append)
    [warning] = told
    assert said in warning
