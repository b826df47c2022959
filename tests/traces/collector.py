"""A collector of OpenTelemetry that keeps what it is sent: OTLP over HTTP, as the standard has it."""

from __future__ import annotations

import os
import threading
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path
from typing import Any

from opentelemetry.proto.collector.trace.v1.trace_service_pb2 import ExportTraceServiceRequest
from opentelemetry.proto.trace.v1 import trace_pb2

from tests.servers.waiting import DEADLINE_SECONDS, wait_until

# Processes give their last spans a second or two, and a supervisor kills a runner that takes longer to end.
PATIENT = f"""
import sys
from holdfast.tasks import tracing

flush = tracing.flush
tracing.flush = lambda _seconds: flush({DEADLINE_SECONDS})
if "holdfast.runners.child" in sys.orig_argv:
    from holdfast.runners.child import main

    main._LONGEST_GOODBYE_SECONDS = {DEADLINE_SECONDS}
elif "worker" in sys.orig_argv:
    from holdfast.worker import supervisor

    supervisor.LAST_SECONDS = {DEADLINE_SECONDS}
"""
ERROR = trace_pb2.Status.STATUS_CODE_ERROR
UNSET = trace_pb2.Status.STATUS_CODE_UNSET


@dataclass(frozen=True)
class Span:
    name: str
    kind: str
    trace_id: str
    id: str
    parent: str
    start: int
    end: int
    status: int
    message: str
    attributes: dict[str, Any]
    events: dict[str, dict[str, Any]]
    service: str

    def is_named_by(self, traceparent: str | None) -> bool:
        return traceparent is not None and traceparent.startswith(f"00-{self.trace_id}-{self.id}-")

    @property
    def is_error(self) -> bool:
        return self.status == ERROR


class Collector:
    def __init__(self) -> None:
        self._lock = threading.Lock()
        self._spans: list[Span] = []
        self._server = ThreadingHTTPServer(("127.0.0.1", 0), self._handler())
        self._thread = threading.Thread(target=self._server.serve_forever, daemon=True)
        self._thread.start()

    @property
    def url(self) -> str:
        return f"http://127.0.0.1:{self._server.server_address[1]}"

    @property
    def environment(self) -> dict[str, str]:
        """Of a process that is to send its spans here, soon."""
        return {
            "OTEL_EXPORTER_OTLP_ENDPOINT": self.url,
            "OTEL_EXPORTER_OTLP_TIMEOUT": f"{DEADLINE_SECONDS:.0f}",
            "OTEL_BSP_SCHEDULE_DELAY": "50",
        }

    def patient_environment(self, folder: Path) -> dict[str, str]:
        """Of a process that is to end: it sends its last spans however slow the collector is. The folder is ours."""
        packages = folder / "patient"
        packages.mkdir()
        (packages / "sitecustomize.py").write_text(PATIENT)
        paths = [str(packages), *filter(None, [os.environ.get("PYTHONPATH")])]
        return {**self.environment, "PYTHONPATH": os.pathsep.join(paths)}

    def spans(self, name: str | None = None, trace_id: str | None = None) -> list[Span]:
        """In the order in which they began."""
        with self._lock:
            found = list(self._spans)
        kept = [span for span in found if name in (None, span.name) and trace_id in (None, span.trace_id)]
        return sorted(kept, key=lambda span: span.start)

    def wait_for(self, name: str, count: int = 1, trace_id: str | None = None) -> list[Span]:
        def there() -> bool:
            return len(self.spans(name, trace_id)) >= count

        try:
            wait_until(there, what=f"{count} spans {name!r} were sent")
        except TimeoutError as error:
            raise AssertionError(f"{error}: {[span.name for span in self.spans()]}") from None
        found = self.spans(name, trace_id)
        assert len(found) == count, found
        return found

    def close(self) -> None:
        self._server.shutdown()
        self._server.server_close()
        self._thread.join()

    def _take(self, body: bytes) -> None:
        with self._lock:
            self._spans += list(_read(body))

    def _handler(self) -> type[BaseHTTPRequestHandler]:
        take = self._take

        class Handler(BaseHTTPRequestHandler):
            protocol_version = "HTTP/1.1"

            def do_POST(self) -> None:
                body = self.rfile.read(int(self.headers["Content-Length"]))
                assert self.path == "/v1/traces"
                take(body)
                self.send_response(200)
                self.send_header("Content-Length", "0")
                self.end_headers()

            def log_message(self, *_: Any) -> None:
                return

        return Handler


@contextmanager
def collecting() -> Iterator[Collector]:
    collector = Collector()
    try:
        yield collector
    finally:
        collector.close()


def _read(body: bytes) -> Iterator[Span]:
    for resource in ExportTraceServiceRequest.FromString(body).resource_spans:
        service = _values(resource.resource.attributes)["service.name"]
        for scope in resource.scope_spans:
            for span in scope.spans:
                yield Span(
                    name=span.name,
                    kind=trace_pb2.Span.SpanKind.Name(span.kind).removeprefix("SPAN_KIND_").lower(),
                    trace_id=span.trace_id.hex(),
                    id=span.span_id.hex(),
                    parent=span.parent_span_id.hex(),
                    start=span.start_time_unix_nano,
                    end=span.end_time_unix_nano,
                    status=span.status.code,
                    message=span.status.message,
                    attributes=_values(span.attributes),
                    events={event.name: _values(event.attributes) for event in span.events},
                    service=service,
                )


def _values(attributes: Any) -> dict[str, Any]:
    read: Callable[[Any], Any] = lambda value: getattr(value, value.WhichOneof("value"))  # noqa: E731
    return {item.key: read(item.value) for item in attributes}
