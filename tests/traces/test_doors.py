"""Messages of Redis and RQ carry nothing but ids: the trace is in the job's row, and goes on from there."""

from __future__ import annotations

import uuid

from holdfast.throwaway.valkey import ValkeyEndpoint
from tests.rq.station import Station
from tests.traces.collector import Collector
from tests.transports.streaming import Fleet
from tests.worker.site import Site

PARENT = f"00-{'a' * 32}-{'b' * 16}-01"


def test_a_job_that_came_through_a_stream(
    sqlite_site: Site, valkey_server: ValkeyEndpoint, collector: Collector
) -> None:
    sqlite_site.tasks("@app.task\ndef add(number: int) -> int: return number + 1")
    with Fleet(sqlite_site.url, valkey_server.url, uuid.uuid4().hex) as fleet:
        fleet.enqueue(1, traceparent=PARENT)
        assert b"traceparent" not in dict(fleet.messages()[0][1])
        sqlite_site.worker(
            "--redis",
            fleet.options.url,
            "--processes",
            "1",
            HOLDFAST_REDIS_PREFIX=fleet.options.prefix,
            **collector.environment,
        )
        sqlite_site.wait_for_counts(succeeded=1)
    [wait], [attempt] = collector.wait_for("wait add"), collector.wait_for("attempt add")
    assert {(span.trace_id, span.parent) for span in (wait, attempt)} == {("a" * 32, "b" * 16)}
    assert attempt.attributes["holdfast.outcome"] == "succeeded"


def test_a_job_that_an_rq_worker_was_told_of(station: Station, collector: Collector) -> None:
    station.rq_worker("-c", "holdfast.rq.preload", **collector.patient_environment(station.site.folder))
    job_id = station.enqueue("stumble", traceparent=PARENT)
    assert station.answer(station.send(job_id))["recorded"] == "retry_scheduled"
    [wait], [attempt] = collector.wait_for("wait stumble"), collector.wait_for("attempt stumble")
    assert {(span.trace_id, span.parent) for span in (wait, attempt)} == {("a" * 32, "b" * 16)}
    assert (attempt.service, attempt.is_error) == ("holdfast-rq", True)
    assert attempt.events["exception"]["exception.message"] == "over the cable"
