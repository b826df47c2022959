"""One trace, from the span of a user's program to the second attempt of its job, over HTTP: four processes that share
nothing but a control plane."""

from __future__ import annotations

import subprocess
import sys
from typing import Any

from tests.remote.fleet import Fleet, Plane
from tests.serve import http
from tests.serve.grounds import bearer
from tests.traces.collector import Collector, Span

TASKS = """
from holdfast import RetryPolicy
from opentelemetry import trace
tracer = trace.get_tracer("a user's own")

@app.task(max_attempts=3, retry=RetryPolicy(kind="fixed", base=0), source="shop")
def collect(ctx: Context):
    with tracer.start_as_current_span("fetch"):
        if ctx.attempt == 1:
            raise RuntimeError("over the cable")
    keep.enqueue()
    return ctx.traceparent

@app.task
def keep():
    pass
"""

PROGRAM = """
import sys
from opentelemetry import trace
from opentelemetry.exporter.otlp.proto.http.trace_exporter import OTLPSpanExporter
from opentelemetry.sdk.resources import Resource
from opentelemetry.sdk.trace import TracerProvider
from opentelemetry.sdk.trace.export import SimpleSpanProcessor
from holdfast import App, RetryPolicy

provider = TracerProvider(resource=Resource.create({"service.name": "shop"}))
provider.add_span_processor(SimpleSpanProcessor(OTLPSpanExporter()))
trace.set_tracer_provider(provider)

app = App(sys.argv[1], token=sys.argv[2])

@app.task(max_attempts=3)
def collect() -> None: ...

with trace.get_tracer("shop").start_as_current_span("order"):
    print(collect.using(source="shop", retry=RetryPolicy(kind="fixed", base=0)).enqueue().id)
"""


def ordered(fleet: Fleet, plane: Plane, collector: Collector) -> str:
    """The id of the job that a program of its own enqueued."""
    done = subprocess.run(
        [sys.executable, "-c", PROGRAM, plane.url, fleet.token],
        env=fleet.environment(**collector.environment),
        capture_output=True,
        text=True,
        check=False,
    )
    assert done.returncode == 0, done.stderr
    return done.stdout.strip()


def test_a_retried_job_is_one_trace_from_its_enqueue_to_its_end(sqlite_fleet: Fleet, collector: Collector) -> None:
    sqlite_fleet.tasks(TASKS)
    plane = sqlite_fleet.plane()
    worker = sqlite_fleet.remote_worker(plane.url, **collector.environment)
    job_id = ordered(sqlite_fleet, plane, collector)
    sqlite_fleet.wait_for_counts(succeeded=2)
    first, second = collector.wait_for("attempt collect", 2)
    [kept] = collector.wait_for("attempt keep")
    [order] = collector.wait_for("order")
    [enqueue] = collector.wait_for("enqueue collect")
    waits = collector.wait_for("wait collect", 2)
    fetches = collector.wait_for("fetch", 2)
    [inner] = collector.wait_for("enqueue keep")

    assert {span.trace_id for span in collector.spans()} == {order.trace_id}
    assert (order.parent, enqueue.parent) == ("", order.id)
    assert {span.parent for span in (first, second, *waits)} == {enqueue.id}
    assert [fetch.parent for fetch in fetches] == [first.id, second.id], "user code is inside its attempt"
    assert (inner.parent, kept.parent) == (second.id, inner.id), "what a job enqueues is a child of its attempt"
    assert_the_waits_lead_to_the_attempts(waits, [first, second])

    assert [span.kind for span in (enqueue, first, waits[0])] == ["producer", "consumer", "internal"]
    assert [span.service for span in (order, first, fetches[0])] == ["shop", "holdfast-worker", "holdfast-runner"]
    assert enqueue.attributes["messaging.message.id"] == job_id
    assert first.attributes == second.attributes | {
        "holdfast.attempt": 1,
        "holdfast.outcome": "failed",
        "holdfast.recorded": "retry_scheduled",
        "error.type": "RuntimeError",
    }
    assert second.attributes == {
        "messaging.system": "holdfast",
        "messaging.operation.name": "attempt",
        "messaging.operation.type": "process",
        "messaging.destination.name": "default",
        "messaging.message.id": job_id,
        "holdfast.task": "collect",
        "holdfast.source": "shop",
        "holdfast.attempt": 2,
        "holdfast.worker": sqlite_fleet.store.attempts(job_id)[1].worker,
        "holdfast.outcome": "succeeded",
        "holdfast.recorded": "succeeded",
    }
    assert (first.is_error, first.message, second.is_error) == (True, "over the cable", False)
    exception = first.events["exception"]
    assert (exception["exception.type"], exception["exception.message"]) == ("RuntimeError", "over the cable")
    assert 'raise RuntimeError("over the cable")' in exception["exception.stacktrace"]
    assert second.is_named_by(sqlite_fleet.job(job_id).result), "ctx.traceparent"
    told = [line for line in worker.lines() if line.get("job_id") == job_id]
    assert {line["trace_id"] for line in told} == {order.trace_id}, "lines of the worker's log say which trace it is"


def assert_the_waits_lead_to_the_attempts(waits: list[Span], attempts: list[Span]) -> None:
    assert [wait.attributes["holdfast.attempt"] for wait in waits] == [1, 2]
    for wait, attempt in zip(waits, attempts, strict=True):
        assert wait.start <= wait.end == attempt.start < attempt.end


def test_a_request_with_a_traceparent_goes_on_with_that_trace(sqlite_fleet: Fleet, collector: Collector) -> None:
    plane = sqlite_fleet.plane(**collector.environment)
    header = f"00-{'a' * 32}-{'b' * 16}-01"
    own = f"00-{'c' * 32}-{'d' * 16}-01"

    def post(path: str, body: Any, *traceparents: str) -> Any:
        headers = [*bearer(sqlite_fleet.token).items(), *(("traceparent", text) for text in traceparents)]
        return http.post(f"{plane.url}/api/v1/jobs{path}", json=body, headers=headers).raise_for_status().json()

    one = post("", {"task": "one"}, header)["id"]
    [span] = collector.wait_for("enqueue one")
    assert (span.trace_id, span.parent, span.service) == ("a" * 32, "b" * 16, "holdfast-serve")
    assert span.is_named_by(sqlite_fleet.job(one).traceparent)

    several = post("/batch", {"jobs": [{"task": "two"}, {"task": "two", "traceparent": own}]}, header)["jobs"]
    [span] = collector.wait_for("enqueue two")
    assert (span.parent, span.attributes["messaging.batch.message_count"]) == ("b" * 16, 2)
    first, second = [sqlite_fleet.job(job["id"]).traceparent for job in several]
    assert span.is_named_by(first)
    assert second == own, "what the form says of its own counts first"

    post("", {"task": "three"}, "00-nonsense-01")
    post("", {"task": "three"}, header, header)
    assert "a" * 32 not in {span.trace_id for span in collector.wait_for("enqueue three", 2)}
