"""An app in a user's program: its spans go to whatever provider the program has set up, and none is set for it."""

from __future__ import annotations

import asyncio
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

import pytest
from opentelemetry import trace
from opentelemetry.sdk.trace import ReadableSpan, TracerProvider
from opentelemetry.sdk.trace.export import SimpleSpanProcessor
from opentelemetry.sdk.trace.export.in_memory_span_exporter import InMemorySpanExporter
from opentelemetry.sdk.trace.sampling import ALWAYS_OFF, ParentBased
from opentelemetry.trace import NonRecordingSpan, SpanContext, StatusCode, TraceFlags, Tracer

from holdfast import App, Context, RetryPolicy, Snooze
from holdfast.domain.errors import InvalidInput, StoreUnavailable
from holdfast.domain.job import NewJob
from holdfast.domain.traceparent import parse
from holdfast.observe.traces import OpenTelemetry
from holdfast.tasks import tracing
from tests.tasks.conftest import app

__all__ = ["app"]

OWN = f"00-{'c' * 32}-{'d' * 16}-01"


class Program:
    """A program with a provider of its own, whose spans it can look at."""

    def __init__(self, provider: TracerProvider) -> None:
        self._exporter = InMemorySpanExporter()
        provider.add_span_processor(SimpleSpanProcessor(self._exporter))
        self.tracer: Tracer = provider.get_tracer("a user's own")

    def spans(self, name: str) -> list[ReadableSpan]:
        return [span for span in self._exporter.get_finished_spans() if span.name == name]

    def span(self, name: str) -> ReadableSpan:
        [found] = self.spans(name)
        return found


@pytest.fixture
def program(monkeypatch: pytest.MonkeyPatch) -> Iterator[Program]:
    provider = TracerProvider()
    monkeypatch.setattr(tracing, "_traces", OpenTelemetry(provider))
    yield Program(provider)
    provider.shutdown()


def named(span: ReadableSpan) -> str:
    known = span.context
    return f"00-{known.trace_id:032x}-{known.span_id:016x}-"


def is_child(span: ReadableSpan, parent: ReadableSpan) -> bool:
    above = span.parent
    assert above is not None
    return (above.trace_id, above.span_id) == (parent.context.trace_id, parent.context.span_id)


def test_enqueue_and_work_in_one_process_are_one_trace(app: App, program: Program) -> None:
    @app.task(max_attempts=2, retry=RetryPolicy(kind="fixed", base=0))
    async def collect(ctx: Context) -> str | None:
        with program.tracer.start_as_current_span("fetch"):
            if ctx.attempt == 1:
                raise RuntimeError("over the cable")
        return ctx.traceparent

    with program.tracer.start_as_current_span("order"):
        handle = collect.enqueue()
    assert app.work() == 2
    order, enqueue = program.span("order"), program.span("enqueue collect")
    first, second = program.spans("attempt collect")
    assert is_child(enqueue, order)
    assert all(is_child(span, enqueue) for span in (first, second, *program.spans("wait collect")))
    for fetch, attempt in zip(program.spans("fetch"), (first, second), strict=True):
        assert is_child(fetch, attempt)
    assert [span.status.status_code for span in (first, second)] == [StatusCode.ERROR, StatusCode.UNSET]
    assert str(handle.result()).startswith(named(second))
    assert trace.get_current_span() is trace.INVALID_SPAN, "nothing is left behind"


def test_a_batch_is_one_span_and_its_jobs_are_children_of_it(app: App, program: Program) -> None:
    @app.task
    def add(number: int) -> None: ...

    handles = add.enqueue_many([(1,), (2,), (3,)])
    asyncio.run(add.aenqueue_many([(4,)]))
    first, second = program.spans("enqueue add")
    assert (first.attributes or {})["messaging.batch.message_count"] == 3
    assert "messaging.batch.message_count" not in (second.attributes or {})
    assert {(handle.job().traceparent or "")[:53] for handle in handles} == {named(first)}
    assert app.work() == 4
    assert [is_child(span, first) for span in program.spans("attempt add")] == [True, True, True, False]


def test_a_traceparent_that_is_given_is_kept_and_makes_no_span(app: App, program: Program) -> None:
    @app.task
    def add() -> None: ...

    with program.tracer.start_as_current_span("order"):
        assert add.using(traceparent=OWN).enqueue().job().traceparent == OWN
    assert program.spans("enqueue add") == []


def test_an_enqueue_that_fails_says_so_and_quotes_nothing(
    app: App, program: Program, monkeypatch: pytest.MonkeyPatch
) -> None:
    @app.task
    def add() -> None: ...

    def away(*_: object) -> None:
        raise StoreUnavailable("postgresql://shop:hunter2@db is away")

    monkeypatch.setattr(app.store, "enqueue", away)
    with pytest.raises(StoreUnavailable):
        add.enqueue()
    span = program.span("enqueue add")
    assert (span.status.status_code, (span.attributes or {})["error.type"]) == (StatusCode.ERROR, "StoreUnavailable")
    assert "hunter2" not in span.to_json()
    with pytest.raises(InvalidInput):
        add.using(priority=1000)
    assert trace.get_current_span() is trace.INVALID_SPAN


def test_payloads_results_and_lease_tokens_are_in_no_span(app: App, program: Program) -> None:
    @app.task
    def pay(card: str) -> str:
        return f"paid with {card}"

    pay.enqueue("4111-secret")
    app.work()
    told = "".join(program.span(f"{name} pay").to_json() for name in ("enqueue", "wait", "attempt"))
    assert "4111" not in told
    assert "token" not in told


def test_what_a_job_puts_off_is_no_error(app: App, program: Program) -> None:
    @app.task
    def doze() -> None:
        raise Snooze("1h", "not yet")

    doze.enqueue()
    app.work()
    span = program.span("attempt doze")
    assert (span.status.status_code, (span.attributes or {})["holdfast.reason"]) == (StatusCode.UNSET, "not yet")


def test_a_provider_that_fails_fails_no_job(app: App, monkeypatch: pytest.MonkeyPatch) -> None:
    class Broken(SimpleSpanProcessor):
        def on_start(self, *_: object, **__: object) -> None:
            raise RuntimeError("a processor of a user's own")

    provider = TracerProvider()
    provider.add_span_processor(Broken(InMemorySpanExporter()))
    monkeypatch.setattr(tracing, "_traces", OpenTelemetry(provider))

    @app.task
    def add() -> int:
        return 1

    handle = add.using(traceparent=OWN).enqueue()
    other = add.enqueue()
    assert app.work() == 2
    assert (handle.result(), other.result()) == (1, 1)


def test_without_a_provider_the_current_context_is_still_carried(app: App, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(tracing, "_traces", OpenTelemetry(trace.NoOpTracerProvider()))

    @app.task
    def add() -> str:
        above = trace.get_current_span().get_span_context()
        return f"{above.trace_id:032x}"

    known = SpanContext(int("c" * 32, 16), int("d" * 16, 16), is_remote=True, trace_flags=TraceFlags(1))
    with trace.use_span(NonRecordingSpan(known)):
        handle = add.enqueue()
    alone = add.enqueue()
    assert (handle.job().traceparent, alone.job().traceparent) == (OWN, None)
    assert tracing.recording() is None
    app.work()
    assert handle.result() == "c" * 32, "the code of a job may pass it on"


def test_a_sampler_decides_about_jobs_without_a_trace_and_is_heard(app: App, monkeypatch: pytest.MonkeyPatch) -> None:
    provider = TracerProvider(sampler=ParentBased(ALWAYS_OFF))
    monkeypatch.setattr(tracing, "_traces", OpenTelemetry(provider))
    program = Program(provider)

    @app.task
    def add(ctx: Context) -> str | None:
        return ctx.traceparent

    handles = [add.enqueue(), app.handle(app.store.enqueue(NewJob(task="add")).id)]
    inherited = add.using(traceparent=OWN).enqueue()
    app.work()
    for handle in handles:
        found = parse(handle.result())
        assert found is not None
        assert not found.flags & TraceFlags.SAMPLED, "everybody further down is told"
    [span] = program.spans("attempt add")
    assert str(inherited.result()).startswith(named(span)), "what its sender has sampled is"


PROGRAM = """
import sys
from holdfast import App

app = App(f"sqlite:///{sys.argv[1]}/jobs.db")

@app.task
def add() -> None: ...

add.enqueue()
app.work()
print("opentelemetry" in sys.modules)
"""


def test_a_program_without_traces_loads_nothing_and_gets_no_provider_from_the_environment(tmp_path: Path) -> None:
    environment = {"OTEL_EXPORTER_OTLP_ENDPOINT": "http://127.0.0.1:9", "OTEL_TRACES_EXPORTER": "otlp"}
    done = subprocess.run(
        [sys.executable, "-c", PROGRAM, tmp_path], capture_output=True, text=True, check=True, env=environment
    )
    assert done.stdout.strip() == "False"
