"""However an attempt ends, and whoever made its process end, it has one span that says so."""

from __future__ import annotations

import socket
import threading
from pathlib import Path
from typing import Any

from holdfast import RetryPolicy
from tests.acceptance.command_line import CommandLine
from tests.servers.waiting import DEADLINE_SECONDS
from tests.traces.collector import Collector
from tests.worker.site import Site

TASKS = """
from opentelemetry import trace
tracer = trace.get_tracer("a user's own")
HERE = Path(__file__).parent

@app.task
async def talk(ctx: Context):
    with tracer.start_as_current_span("said"):
        await asyncio.sleep(0)
    return ctx.traceparent

@app.task
def doze(ctx: Context):
    raise Snooze("1h", "not yet")

@app.task(max_crashes=1)
def crash():
    with tracer.start_as_current_span("last words"):
        pass
    trace.get_tracer_provider().force_flush(600_000)
    os.kill(os.getpid(), signal.SIGKILL)

@app.task(timeout=0.2, max_attempts=1)
def linger():
    time.sleep(600)

@app.task
def refuse():
    raise Permanent("postgresql://shop:hunter2@db/orders is no place for this")

app.command("shell", [sys.executable, "-c",
    "import json, os; print(json.dumps({'holdfast': 'result', 'result': os.environ.get('TRACEPARENT')}))"])
"""

ENDINGS = {  # outcome, what the store recorded, what the span says of the error
    "talk": ("succeeded", "succeeded", None),
    "doze": ("snoozed", "snoozed", None),
    "crash": ("crashed", "failed", "crashed"),
    "linger": ("failed", "failed", "timeout"),
    "refuse": ("failed", "failed", "Permanent"),
    "shell": ("succeeded", "succeeded", None),
}


def drain(site: Site, collector: Collector) -> None:
    """A worker that traces, until nothing is due."""
    environment = collector.patient_environment(site.folder)
    assert site.worker("--drain", "--processes", "1", **environment).wait() == 0


def test_every_ending_of_an_attempt_is_told(site: Site, collector: Collector) -> None:
    site.tasks(TASKS)
    options: dict[str, dict[str, Any]] = {
        "linger": {"timeout_seconds": 0.2, "max_attempts": 1},
        "crash": {"max_crashes": 1},
    }
    parents = {task: f"00-{number:032x}-{number:016x}-01" for number, task in enumerate(ENDINGS, 1)}
    ids = {task: site.enqueue(task, traceparent=parents[task], **options.get(task, {})) for task in ENDINGS}
    drain(site, collector)

    spans = {task: collector.wait_for(f"attempt {task}")[0] for task in ENDINGS}
    for task, (outcome, recorded, error) in ENDINGS.items():
        span, told = spans[task], spans[task].attributes
        assert (span.trace_id, span.parent) == tuple(parents[task].split("-")[1:3])
        assert (told["holdfast.outcome"], told["holdfast.recorded"]) == (outcome, recorded), task
        assert (told.get("error.type"), span.is_error) == (error, error is not None), task
        assert told["messaging.message.id"] == ids[task]
    assert spans["crash"].attributes["holdfast.signal"] == 9
    assert spans["doze"].attributes["holdfast.reason"] == "not yet"
    assert "hunter2" not in str(spans["refuse"]), "secrets that an error quotes are masked"
    assert spans["talk"].is_named_by(site.job(ids["talk"]).result)
    assert spans["shell"].is_named_by(site.job(ids["shell"]).result), "a command finds it in TRACEPARENT"
    [said], [words] = collector.wait_for("said"), collector.wait_for("last words")
    assert (said.parent, words.parent) == (spans["talk"].id, spans["crash"].id)


def test_attempts_of_a_job_that_came_without_a_trace_are_still_in_one(sqlite_site: Site, collector: Collector) -> None:
    sqlite_site.tasks("""
        @app.task
        def stumble():
            raise RuntimeError("again")
    """)
    sqlite_site.enqueue("stumble", max_attempts=2, retry=RetryPolicy(kind="fixed", base=0))
    drain(sqlite_site, collector)
    first, second = collector.wait_for("attempt stumble", 2)
    assert first.trace_id == second.trace_id
    assert [span.attributes["holdfast.attempt"] for span in (first, second)] == [1, 2]


def test_an_app_that_sets_up_its_own_provider_has_the_attempts_in_it(sqlite_site: Site, collector: Collector) -> None:
    """The supervisor does not import the app and has nothing to export with: the spans are made by the runner."""
    sqlite_site.tasks(f"""
        from opentelemetry import trace
        from opentelemetry.exporter.otlp.proto.http.trace_exporter import OTLPSpanExporter
        from opentelemetry.sdk.resources import Resource
        from opentelemetry.sdk.trace import TracerProvider
        from opentelemetry.sdk.trace.export import SimpleSpanProcessor
        provider = TracerProvider(resource=Resource.create({{"service.name": "shop"}}))
        exporter = OTLPSpanExporter("{collector.url}/v1/traces", timeout={DEADLINE_SECONDS})
        provider.add_span_processor(SimpleSpanProcessor(exporter))
        trace.set_tracer_provider(provider)

        @app.task
        def sell(ctx: Context):
            with trace.get_tracer("a user's own").start_as_current_span("fetch"):
                return ctx.traceparent
    """)
    job_id = sqlite_site.enqueue("sell", traceparent=f"00-{'a' * 32}-{'b' * 16}-01")
    path = collector.patient_environment(sqlite_site.folder)["PYTHONPATH"]
    sqlite_site.drain("--processes", "1", PYTHONPATH=path)
    [attempt], [wait], [fetch] = (collector.wait_for(name) for name in ("attempt sell", "wait sell", "fetch"))
    assert (attempt.trace_id, attempt.parent, wait.parent) == ("a" * 32, "b" * 16, "b" * 16)
    assert (fetch.parent, attempt.service) == (attempt.id, "shop")
    assert attempt.is_named_by(sqlite_site.job(job_id).result)
    assert attempt.attributes["holdfast.worker"] == sqlite_site.store.attempts(job_id)[0].worker


def test_a_collector_that_hangs_holds_up_nobody(sqlite_site: Site) -> None:
    """It takes what it is sent and never answers; whoever waited for it would wait for ten minutes."""
    sqlite_site.tasks("""
        @app.task
        def add(number: int = 1) -> int:
            return number + 1
    """)
    with socket.create_server(("127.0.0.1", 0)) as listener:
        asked = threading.Event()
        threading.Thread(target=_hang, args=(listener, asked), daemon=True).start()
        sqlite_site.worker(
            "--processes",
            "1",
            OTEL_EXPORTER_OTLP_ENDPOINT=f"http://127.0.0.1:{listener.getsockname()[1]}",
            OTEL_EXPORTER_OTLP_TIMEOUT="600",
            OTEL_BSP_SCHEDULE_DELAY="50",
        )
        sqlite_site.enqueue_many("add", 3)
        sqlite_site.wait_for_counts(succeeded=3)
        assert asked.wait(DEADLINE_SECONDS), "it was sent something"
        sqlite_site.enqueue_many("add", 50)
        sqlite_site.wait_for_counts(succeeded=53)
        assert sqlite_site.workers[0].stop() == 0
        assert sqlite_site.count_events("lease_lost") == 0


def _hang(listener: socket.socket, asked: threading.Event) -> None:
    kept = []
    while True:
        try:
            connection, _ = listener.accept()
        except OSError:
            return
        kept.append(connection)
        if connection.recv(1):
            asked.set()


BLOCK = """
import sys

class Block:
    def find_spec(self, name, path=None, target=None):
        if name.partition(".")[0] == "opentelemetry":
            raise ModuleNotFoundError(f"No module named {name!r}", name=name)

sys.meta_path.insert(0, Block())
"""


def test_without_the_packages_jobs_run_and_one_line_says_what_is_missing(sqlite_site: Site, tmp_path: Path) -> None:
    packages = tmp_path / "packages"
    packages.mkdir()
    (packages / "sitecustomize.py").write_text(BLOCK)
    sqlite_site.tasks("""
        @app.task
        def first(ctx: Context):
            second.enqueue()
            return ctx.traceparent

        @app.task
        def second():
            try:
                import opentelemetry
            except ModuleNotFoundError:
                return sorted(name for name in sys.modules if "opentelemetry" in name)
    """)
    parent = f"00-{'a' * 32}-{'b' * 16}-01"
    job_id = sqlite_site.enqueue("first", traceparent=parent)
    worker = sqlite_site.drain(
        "--processes", "1", PYTHONPATH=str(packages), OTEL_EXPORTER_OTLP_ENDPOINT="http://127.0.0.1:9"
    )
    assert sqlite_site.job(job_id).result == parent
    [second] = [job for job in sqlite_site.store.jobs().items if job.task == "second"]
    assert second.result == []
    assert second.traceparent == parent, "a trace that goes through here is passed on"
    [warning] = [line for line in worker.lines() if line["level"] == "warning"]
    assert "pip install 'holdfast[otel]'" in warning["event"]
    assert "OTEL_EXPORTER_OTLP_ENDPOINT" in warning["event"]


def test_without_configuration_no_process_of_a_worker_loads_it(sqlite_site: Site) -> None:
    sqlite_site.tasks("""
        @app.task
        def first():
            second.enqueue()

        @app.task
        def second():
            pass
    """)
    sqlite_site.enqueue("first", traceparent=f"00-{'a' * 32}-{'b' * 16}-01")
    worker = sqlite_site.drain("--processes", "1", PYTHONPROFILEIMPORTTIME="1")
    assert sqlite_site.counts() == {"succeeded": 2}
    imported = worker.text()  # by the supervisor and by its runner
    assert imported.count("holdfast.tasks.tracing") == 2
    assert "opentelemetry" not in imported


def test_a_command_line_goes_on_with_the_trace_of_its_environment(sqlite_site: Site, collector: Collector) -> None:
    command = CommandLine(sqlite_site.folder, sqlite_site.url)
    variables = {"TRACEPARENT": f"00-{'a' * 32}-{'b' * 16}-01", "OTEL_SERVICE_NAME": "cron"}
    variables |= collector.patient_environment(sqlite_site.folder)
    job_id = command("enqueue", "mail", **variables).succeeded().out.strip()
    [span] = collector.wait_for("enqueue mail")
    assert (span.trace_id, span.parent, span.service) == ("a" * 32, "b" * 16, "cron")
    assert span.is_named_by(sqlite_site.job(job_id).traceparent)
