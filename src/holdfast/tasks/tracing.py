"""Where the engine meets traces. OpenTelemetry itself is known to `observe/traces*.py` alone, which is imported when
this process has a use for it: because its own code has loaded OpenTelemetry, or because the environment asks for an
exporter. Else every hook is one test, and a traceparent that came with a job is only passed on.
"""

from __future__ import annotations

import os
import sys
from collections.abc import Callable, Mapping, Sequence
from types import TracebackType
from typing import TYPE_CHECKING, Protocol, Self

from holdfast.domain.alike import AlikeJobs, representatives
from holdfast.domain.traceparent import checked
from holdfast.tasks.context import JobInfo, Trace, find_current

if TYPE_CHECKING:
    from holdfast.domain.answers import Settled
    from holdfast.domain.job import Enqueued, NewJob
    from holdfast.domain.outcome import Outcome

ENDPOINTS = ("OTEL_EXPORTER_OTLP_TRACES_ENDPOINT", "OTEL_EXPORTER_OTLP_ENDPOINT")
EXPORTERS = "OTEL_TRACES_EXPORTER"
DISABLED = "OTEL_SDK_DISABLED"
FLUSH_SECONDS = 2.0  # that a command may take longer to end
_API = "opentelemetry.trace"


class Enqueueing:
    """`with enqueueing(jobs) as sent:` stores `sent.jobs` inside, and then says what the store answered."""

    def __init__(self, jobs: Sequence[NewJob]) -> None:
        self.jobs = jobs

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        return

    def answered(self, answers: Sequence[Enqueued]) -> None:  # noqa: ARG002
        return


class AttemptTrace(Trace, Protocol):
    """The span of one attempt, from its claim on. What it is told after its end changes nothing."""

    @property
    def traceparent(self) -> str | None:
        """Of this very attempt."""

    def started(self) -> None:
        """Its code runs."""

    def lost(self, message: str) -> None:
        """Its lease; the span goes on until the attempt is over."""

    def ended(self, outcome: Outcome, settled: Settled | None = None) -> None:
        """`settled` is what the store said to that, where it is known."""

    def dropped(self) -> None:
        """Nobody will report it."""


class Traces(Protocol):
    @property
    def is_recording(self) -> bool:
        """Somebody has set up a tracer provider in this process; else spans come to nothing."""

    def enqueueing(self, jobs: Sequence[NewJob], parent: str | None) -> Enqueueing: ...

    def attempt(self, job: JobInfo, worker: str | None, due_seconds: float | None) -> AttemptTrace: ...

    def inside(self, traceparent: str | None) -> Trace | None:
        """For code that is to run as a part of that span, which somebody else has made."""

    def flush(self, seconds: float) -> None: ...


_traces: Traces | None = None


def active() -> Traces | None:
    """None in a process that has not loaded OpenTelemetry: nobody in it can have a span, or a use for one."""
    global _traces
    if _traces is None and _API in sys.modules:
        from holdfast.observe.traces import OpenTelemetry

        _traces = OpenTelemetry()
    return _traces


def recording() -> Traces | None:
    traces = active()
    return traces if traces is not None and traces.is_recording else None


def is_wanted(environment: Mapping[str, str]) -> bool:
    """Does the standard environment ask for an exporter?"""
    if environment.get(DISABLED, "").strip().lower() == "true":
        return False
    if exporters := environment.get(EXPORTERS, "").strip().lower():
        return exporters != "none"
    return any(environment.get(name, "").strip() for name in ENDPOINTS)


def set_up(service: str, warn: Callable[[str], None] = lambda _said: None) -> None:
    """Export the spans of this process as the environment says; for commands of ours, never for a user's program."""
    if is_wanted(os.environ):
        from holdfast.observe.traces_setup import begin

        begin(service, warn)


def flush(seconds: float) -> None:
    """Before a process ends: what has ended is sent, if that takes no longer."""
    if (traces := active()) is not None:
        traces.flush(seconds)


def is_apart() -> bool:
    """Nobody here makes spans, and no job runs here of whose trace a new one would be a part."""
    return active() is None and find_current() is None


def enqueueing(jobs: Sequence[NewJob], parent: str | None = None) -> Enqueueing:
    """`parent` is a traceparent that came from outside, for where this code has no span of its own."""
    traces = active()
    if traces is not None and any(job.traceparent is None for job in representatives(jobs)):
        return traces.enqueueing(jobs, parent)
    return Enqueueing(traced(jobs, checked(parent) or of_current_job()))


def of_current_job() -> str | None:
    """A job that another one enqueues belongs to the same trace, also where nobody here makes spans."""
    job = find_current()
    return None if job is None else checked(job.job.traceparent)


def traced(jobs: Sequence[NewJob], traceparent: str | None) -> Sequence[NewJob]:
    """What names a trace of its own keeps it."""
    if traceparent is None:
        return jobs
    if isinstance(jobs, AlikeJobs):
        return jobs if jobs.like.traceparent is not None else jobs.with_traceparent(traceparent)
    return [job if job.traceparent is not None else job.with_traceparent(traceparent) for job in jobs]
