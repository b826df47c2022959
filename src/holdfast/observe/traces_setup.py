"""A tracer provider for commands of ours, as the standard environment variables describe it.

The provider is only set where the process has none. Spans wait in a bounded queue and are exported by a thread; when a
collector is away or hangs, they are dropped, which is said once, and nobody waits for it.
"""

from __future__ import annotations

import logging
import os
import sys
from collections.abc import Callable, Sequence
from typing import TYPE_CHECKING

from holdfast.tasks.tracing import ENDPOINTS, EXPORTERS

if TYPE_CHECKING:
    from opentelemetry.sdk.trace import ReadableSpan
    from opentelemetry.sdk.trace.export import SpanExporter, SpanExportResult

Warn = Callable[[str], None]

SERVICE_NAME, RESOURCE = "OTEL_SERVICE_NAME", "OTEL_RESOURCE_ATTRIBUTES"
PROTOCOLS = ("OTEL_EXPORTER_OTLP_TRACES_PROTOCOL", "OTEL_EXPORTER_OTLP_PROTOCOL")
HTTP = "http/protobuf"
DELAY = "OTEL_BSP_SCHEDULE_DELAY"
DELAY_MILLISECONDS = 1_000.0  # by which a runner that is killed has sent most of its spans; the usual is 5 s
# They write about every batch that fails, into the log of whatever job runs at that moment. We say it once.
_TALKATIVE = ("opentelemetry.exporter", "opentelemetry.sdk._shared_internal")


def begin(service: str, warn: Warn) -> None:
    try:
        exporters = _exporters(warn)
        if exporters:
            _set_provider(service, exporters, warn)
    except ImportError as error:
        asked = next((name for name in (EXPORTERS, *ENDPOINTS) if os.environ.get(name)), EXPORTERS)
        warn(f"{asked} asks for traces, and they are off ({error}): pip install 'holdfast[otel]'")
    except Exception as error:  # a certificate that is not there, a limit that is no number
        warn(f"the environment asks for traces, and they are off ({type(error).__name__}: {error})")


def _exporters(warn: Warn) -> list[SpanExporter]:
    wanted = [name.strip() for name in os.environ.get(EXPORTERS, "otlp").lower().split(",")]
    made = [_exporter(name, warn) for name in wanted if name not in ("", "none")]
    return [exporter for exporter in made if exporter is not None]


def _exporter(name: str, warn: Warn) -> SpanExporter | None:
    if name == "console":
        from opentelemetry.sdk.trace.export import ConsoleSpanExporter

        return ConsoleSpanExporter(out=sys.__stderr__ or sys.stderr)
    if name != "otlp":
        warn(f"{EXPORTERS}={name} is not known here: otlp, console or none")
        return None
    protocol = next((found for asked in PROTOCOLS if (found := os.environ.get(asked))), HTTP)
    if protocol != HTTP:
        warn(f"traces are off: OTLP over {protocol} is not known here, set OTEL_EXPORTER_OTLP_PROTOCOL={HTTP}")
        return None
    from opentelemetry.exporter.otlp.proto.http.trace_exporter import OTLPSpanExporter

    return OTLPSpanExporter()


def _set_provider(service: str, exporters: Sequence[SpanExporter], warn: Warn) -> None:
    from opentelemetry import trace
    from opentelemetry.sdk.resources import Resource
    from opentelemetry.sdk.trace import TracerProvider
    from opentelemetry.sdk.trace.export import BatchSpanProcessor

    if not isinstance(trace.get_tracer_provider(), trace.ProxyTracerProvider):
        return  # the application's own, or of `opentelemetry-instrument`
    is_named = os.environ.get(SERVICE_NAME) or "service.name=" in os.environ.get(RESOURCE, "")
    # Not shut down at exit: that waits for the exporter for as long as that likes. Who sets up flushes.
    provider = TracerProvider(
        resource=Resource.create({} if is_named else {"service.name": service}), shutdown_on_exit=False
    )
    delay = None if os.environ.get(DELAY) else DELAY_MILLISECONDS
    for exporter in exporters:
        provider.add_span_processor(BatchSpanProcessor(_watched(exporter, warn), schedule_delay_millis=delay))
    for name in _TALKATIVE:
        if logging.getLogger(name).level == logging.NOTSET:
            logging.getLogger(name).setLevel(logging.CRITICAL + 1)
    trace.set_tracer_provider(provider)


def _watched(exporter: SpanExporter, warn: Warn) -> SpanExporter:
    from opentelemetry.sdk.trace.export import SpanExporter, SpanExportResult

    class Watched(SpanExporter):
        """Says when spans cannot be delivered any more, and when they can again."""

        def __init__(self) -> None:
            self._works = True

        def export(self, spans: Sequence[ReadableSpan]) -> SpanExportResult:
            result = exporter.export(spans)
            works = result is SpanExportResult.SUCCESS
            if works != self._works:
                self._works = works
                warn("traces are delivered again" if works else "traces cannot be delivered, and are dropped")
            return result

        def shutdown(self) -> None:
            exporter.shutdown()

    return Watched()
