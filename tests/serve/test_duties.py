"""A fleet that only speaks HTTP needs nothing else: the control plane reaps, fires schedules, and keeps the streams."""

from __future__ import annotations

import uuid
from typing import Any

import pytest
from redis import Redis

from holdfast.domain.events import Event, Events, JobReaped
from holdfast.domain.job import NewJob
from holdfast.domain.schedule import Declaration
from holdfast.domain.timing import Timing
from holdfast.throwaway.valkey import ValkeyEndpoint
from holdfast.wiring.redis import StreamOptions
from holdfast.wiring.sql import open_store
from tests.serve.grounds import serving
from tests.serve.speaking import claim, lease, say
from tests.servers.waiting import DEADLINE_SECONDS, wait_until

# Calls to the store may take long, and the reaper comes often.
OFTEN = Timing(lease=DEADLINE_SECONDS, heartbeat=10.0, timeout=DEADLINE_SECONDS, reap_period=0.1)


@pytest.mark.parametrize("served_database", ["sqlite"], indirect=True)
def test_expired_leases_are_reaped_and_schedules_fire(served_database: str, queue: str) -> None:
    told: list[Event] = []
    ticks = f"{queue}-ticks"
    store = open_store(served_database)  # a server without schedules reads them every 15 s, and once at its start
    store.add_schedule(Declaration(name=queue, task="tick", every_seconds=1.0, job={"queue": ticks}))
    store.close()
    events = Events(told.append)
    with (
        serving(served_database, events, duties=True, timing=OFTEN) as served,
        served.client("worker") as worker,
    ):
        [job_id] = [served.store.enqueue(NewJob(task="send", queue=queue, lease_seconds=0.2)).id]
        claim(worker, queue)
        wait_until(lambda: served.store.job(job_id).transition == "lease_lost", what="its worker is taken for dead")
        successor = claim(worker, queue, max_wait_ms=60_000)
        assert (successor["job_id"], successor["attempt"]) == (job_id, 2)
        wait_until(lambda: JobReaped(job_id, 1, "lease_lost") in told, what=f"it is told of the job: {told}")
        assert claim(worker, ticks, max_wait_ms=60_000)["task"] == "tick"


@pytest.mark.parametrize("served_database", ["sqlite"], indirect=True)
def test_with_redis_the_message_of_a_claim_goes_when_its_report_is_committed(
    served_database: str, queue: str, valkey_server: ValkeyEndpoint
) -> None:
    redis = StreamOptions(url=valkey_server.url, prefix=f"serve-{uuid.uuid4().hex}", timeout_seconds=DEADLINE_SECONDS)
    with (
        serving(served_database, redis=redis) as served,
        served.client("client") as client,
        served.client("worker") as worker,
    ):
        made = client.post("/api/v1/jobs", json={"task": "send", "payload": {}, "queue": queue})
        assert made.status_code == 201, made.text
        # Without it, the claim would look into the database.
        wait_until(lambda: length(redis, queue) == 1, what="the message is sent")
        job = claim(worker, queue, max_wait_ms=60_000)
        assert job["message_id"]
        assert length(redis, queue) == 1
        assert say(worker, "complete", **lease(job), result=None)["ack"]
        wait_until(lambda: length(redis, queue) == 0, what="the message is removed")


def length(options: StreamOptions, queue: str) -> Any:
    with Redis.from_url(options.url) as connection:
        return connection.xlen(f"{options.prefix}:stream:{queue}")
