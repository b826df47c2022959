"""Spans of OpenTelemetry: enqueue, wait and attempt of a job, in one trace.

All of them are children of the span that enqueued the job, whose context is the job's `traceparent`: retries stand one
after another in the same trace, in whatever processes they ran. A job that came without one (from a schedule, from SQL)
gets a trace whose id follows from the job's id, so that its attempts still find each other.

Nothing here may fail or hold up a job: spans are handed to the provider, which exports in a thread of its own, and
whatever a provider raises is kept from the caller.
"""

from __future__ import annotations

import hashlib
import threading
import time
import uuid
from collections.abc import Callable, Sequence
from contextlib import suppress
from functools import wraps
from importlib.metadata import version
from types import TracebackType
from typing import TYPE_CHECKING, Any, ParamSpec, Self

from opentelemetry import context as contexts
from opentelemetry import trace
from opentelemetry.context import Context
from opentelemetry.trace import NonRecordingSpan, Span, SpanContext, SpanKind, StatusCode, TraceFlags

from holdfast.domain.alike import representatives
from holdfast.domain.answers import Settled, Status
from holdfast.domain.lifecycle import Event
from holdfast.domain.outcome import Cancelled, Crashed, Failed, JobError, Outcome, Released, Snoozed
from holdfast.domain.traceparent import Traceparent, parse
from holdfast.observe.redaction import masked
from holdfast.tasks.tracing import Enqueueing, of_current_job, traced

if TYPE_CHECKING:
    from holdfast.domain.job import Enqueued, NewJob
    from holdfast.tasks.context import JobInfo

SYSTEM = "holdfast"
LONGEST_MESSAGE, LONGEST_STACK = 1_000, 8_000
_BAD_ENDINGS = frozenset({Event.FAILED, Event.RETRY_SCHEDULED, Event.CRASHED, Event.LEASE_LOST})

Attributes = dict[str, str | int | float | bool]
Given = ParamSpec("Given")


def _harmless(act: Callable[Given, None]) -> Callable[Given, None]:
    @wraps(act)
    def tried(*args: Given.args, **kwargs: Given.kwargs) -> None:
        with suppress(Exception):
            act(*args, **kwargs)

    return tried


class OpenTelemetry:
    """The tracer of this process: of the provider that whoever owns the process has set up, or of none."""

    def __init__(self, provider: trace.TracerProvider | None = None) -> None:
        self._given = provider
        self._tracer = trace.get_tracer("holdfast", version("holdfast"), provider)

    @property
    def _provider(self) -> trace.TracerProvider:
        return self._given or trace.get_tracer_provider()

    @property
    def is_recording(self) -> bool:
        return not isinstance(self._provider, trace.ProxyTracerProvider | trace.NoOpTracerProvider)

    def enqueueing(self, jobs: Sequence[NewJob], parent: str | None) -> Enqueueing:
        return _EnqueueSpan(self._tracer, jobs, parent)

    def attempt(self, job: JobInfo, worker: str | None, due_seconds: float | None) -> AttemptSpan:
        """With the span of its wait, which is over."""
        try:
            return AttemptSpan(self._begin(job, worker, due_seconds))
        except Exception:
            return AttemptSpan(trace.INVALID_SPAN)

    def _begin(self, job: JobInfo, worker: str | None, due_seconds: float | None) -> Span:
        parent = _context(parse(job.traceparent) or self._root(job.id))
        now = time.time_ns()
        known = _about(job.task, job.queue, job.source)
        known |= {"messaging.message.id": job.id, "holdfast.attempt": job.attempt}
        if due_seconds is not None:
            began = now - int(due_seconds * 1e9)
            self._tracer.start_span(f"wait {job.task}", parent, attributes=known, start_time=began).end(now)
        known |= {"messaging.operation.name": "attempt", "messaging.operation.type": "process"}
        if worker is not None:
            known["holdfast.worker"] = worker
        return self._tracer.start_span(
            f"attempt {job.task}", parent, kind=SpanKind.CONSUMER, attributes=known, start_time=now
        )

    def inside(self, traceparent: str | None) -> _Inside | None:
        known = parse(traceparent)
        return None if known is None else _Inside(_context(known))

    def flush(self, seconds: float) -> None:
        flush: Callable[[int], object] | None = getattr(self._provider, "force_flush", None)
        if flush is not None:
            # A thread, because a flush takes as long as the exporter does, whatever it is told; it ends with us.
            thread = threading.Thread(target=_quietly, args=(flush, int(seconds * 1000)), daemon=True)
            thread.start()
            thread.join(seconds)

    def _root(self, job_id: str) -> Traceparent:
        """Every process that meets this job comes to the same one."""
        digest = hashlib.sha256(b"holdfast trace" + uuid.UUID(job_id).bytes).digest()
        trace_id, span_id = int.from_bytes(digest[:16]), int.from_bytes(digest[16:24])
        return Traceparent(trace_id, span_id, self._sampled(trace_id))

    def _sampled(self, trace_id: int) -> TraceFlags:
        """As the sampler decides about a new trace of this id: it would take a parent's word for it."""
        sampler = getattr(self._provider, "sampler", None)
        if sampler is None:
            return TraceFlags(TraceFlags.SAMPLED)
        decision = sampler.should_sample(None, trace_id, "job").decision
        return TraceFlags(TraceFlags.SAMPLED if decision.is_sampled() else TraceFlags.DEFAULT)


class _Inside:
    """Code that runs in here has this context as its current one."""

    def __init__(self, context: Context) -> None:
        self._context = context

    def enter(self) -> Callable[[], None]:
        token = contexts.attach(self._context)
        return lambda: contexts.detach(token)


class AttemptSpan:
    def __init__(self, span: Span) -> None:
        self._span = span
        self._is_over = False
        self._is_lost = False

    @property
    def traceparent(self) -> str | None:
        return _traceparent(self._span)

    def enter(self) -> Callable[[], None]:
        return _Inside(trace.set_span_in_context(self._span)).enter()

    @_harmless
    def started(self) -> None:
        if not self._is_over:
            self._span.add_event("started")

    @_harmless
    def lost(self, message: str) -> None:
        if not self._is_over:
            self._is_lost = True
            self._span.add_event("lease_lost", {"message": message})

    @_harmless
    def ended(self, outcome: Outcome, settled: Settled | None = None) -> None:
        if self._is_over:
            return
        recorded = None if settled is None else settled.event
        told: Attributes = {"holdfast.outcome": type(outcome).__name__.lower()}
        if recorded is not None:
            told["holdfast.recorded"] = str(recorded)
        if recorded != Event.SUCCEEDED:  # what a task does after it has completed its job in a transaction is its own
            told |= _details(outcome)
        self._span.set_attributes(told)
        if settled is not None and settled.status is Status.REFUSED:
            self._fail("lease_lost", f"the report was refused: {settled.reason}")
        elif self._is_lost:
            self._fail("lease_lost", "the lease was lost")
        elif recorded != Event.SUCCEEDED:
            self._judge(outcome, recorded)
        self._end()

    @_harmless
    def dropped(self) -> None:
        if not self._is_over:
            self._span.set_attribute("holdfast.outcome", "lease_lost")
            self._fail("lease_lost", "no outcome was recorded")
            self._end()

    def _judge(self, outcome: Outcome, recorded: str | None) -> None:
        match outcome:
            case Failed(error):
                self._span.add_event("exception", _exception(error))
                self._fail(error.code, error.message)
            case Crashed(message):
                self._fail("crashed", message)
            case _ if recorded in _BAD_ENDINGS:  # a transaction that rolled back, a result that cannot be stored
                self._fail(str(recorded), f"recorded as {recorded}")

    def _fail(self, kind: str, message: str) -> None:
        self._span.set_attribute("error.type", kind)
        self._span.set_status(StatusCode.ERROR, _short(message))

    def _end(self) -> None:
        self._is_over = True
        self._span.end()


class _EnqueueSpan(Enqueueing):
    """One span, also for a batch: what takes time is one transaction, and ten thousand spans would say no more."""

    def __init__(self, tracer: trace.Tracer, jobs: Sequence[NewJob], parent: str | None) -> None:
        super().__init__(jobs)
        self._tracer = tracer
        self._parent = parent
        self._leave: Callable[[], None] = lambda: None
        self._span: Span = trace.INVALID_SPAN

    def __enter__(self) -> Self:
        self._begin()
        return self

    @_harmless
    def _begin(self) -> None:
        kinds = representatives(self.jobs)
        first = kinds[0]
        task = first.task if len({job.task for job in kinds}) == 1 else "several tasks"
        told = _about(task, first.queue, first.source)
        told |= {"messaging.operation.name": "enqueue", "messaging.operation.type": "send"}
        if len(self.jobs) > 1:
            told["messaging.batch.message_count"] = len(self.jobs)
        span = self._tracer.start_span(f"enqueue {task}", self._above(), kind=SpanKind.PRODUCER, attributes=told)
        self.jobs = traced(self.jobs, _traceparent(span))
        self._span = span
        self._leave = _Inside(trace.set_span_in_context(span)).enter()

    def _above(self) -> Context | None:
        """The user's own span, else what came from outside, else the job that this code runs in."""
        if trace.get_current_span().get_span_context().is_valid:
            return None
        found = parse(self._parent) or parse(of_current_job())
        return None if found is None else _context(found)

    @_harmless
    def answered(self, answers: Sequence[Enqueued]) -> None:
        if len(answers) == 1:
            self._span.set_attributes({"messaging.message.id": answers[0].id, "holdfast.created": answers[0].created})

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        with suppress(Exception):
            self._leave()
            if kind is not None:  # its name only: the text may quote what was to be stored
                self._span.set_attribute("error.type", kind.__qualname__)
                self._span.set_status(StatusCode.ERROR)
            self._span.end()


def _about(task: str, queue: str, source: str | None) -> Attributes:
    known: Attributes = {"messaging.system": SYSTEM, "messaging.destination.name": queue, "holdfast.task": task}
    return known if source is None else known | {"holdfast.source": source}


def _details(outcome: Outcome) -> Attributes:
    match outcome:
        case Crashed(_, exit_code, signal):
            figures = {"holdfast.exit_code": exit_code, "holdfast.signal": signal}
            return {name: value for name, value in figures.items() if value is not None}
        case Failed(exit_code=int() as exit_code):
            return {"holdfast.exit_code": exit_code}
        case Snoozed(delay, reason):
            return {"holdfast.reason": _short(reason), "holdfast.delay_seconds": delay}
        case Released(reason) | Cancelled(reason):
            return {"holdfast.reason": _short(reason)}
        case _:
            return {}


def _exception(error: JobError) -> dict[str, Any]:
    told = {"exception.type": error.code, "exception.message": _short(error.message)}
    if error.stack is not None:  # its end says most
        told["exception.stacktrace"] = masked(error.stack[-LONGEST_STACK:])
    return told


def _short(text: str) -> str:
    return masked(text[:LONGEST_MESSAGE])


def _context(known: Traceparent) -> Context:
    remote = SpanContext(known.trace_id, known.span_id, is_remote=True, trace_flags=TraceFlags(known.flags))
    return trace.set_span_in_context(NonRecordingSpan(remote), Context())


def _traceparent(span: Span) -> str | None:
    known = span.get_span_context()
    return str(Traceparent(known.trace_id, known.span_id, known.trace_flags)) if known.is_valid else None


def _quietly(flush: Callable[[int], object], milliseconds: int) -> None:
    with suppress(Exception):
        flush(milliseconds)
