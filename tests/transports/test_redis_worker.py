"""A real worker that takes its jobs through Redis Streams."""

import signal
import uuid
from collections.abc import Iterator
from typing import Any

import pytest

from holdfast.throwaway.valkey import ValkeyEndpoint
from holdfast.transports.redis_streams.options import GROUP
from tests.chaos.conftest import sqlite_url
from tests.transports.streaming import Fleet
from tests.worker.conftest import sqlite_site
from tests.worker.site import Site

__all__ = ["sqlite_site", "sqlite_url"]

TASKS = """
@app.task
def add(number: int = 0) -> int:
    return number + 1
"""


def environment(fleet: Fleet) -> dict[str, Any]:
    """Of a worker that does not take a slow Redis for one that is away."""
    return {"HOLDFAST_REDIS_PREFIX": fleet.options.prefix, "HOLDFAST_REDIS_TIMEOUT": "60s"}


@pytest.fixture
def fleet(sqlite_site: Site, valkey_server: ValkeyEndpoint) -> Iterator[Fleet]:
    with Fleet(sqlite_site.url, valkey_server.url, uuid.uuid4().hex) as fleet:
        yield fleet


def test_a_worker_takes_jobs_through_streams_and_leaves_nothing_there(sqlite_site: Site, fleet: Fleet) -> None:
    sqlite_site.tasks(TASKS)
    worker = sqlite_site.worker("--redis", fleet.options.url, "--processes", "1", **environment(fleet))
    worker.wait_for_log("streams: redis://")
    print(f"{fleet.server()}, worker {worker.pid}")
    fleet.enqueue(20)
    sqlite_site.wait_for_counts(succeeded=20)
    readers = [consumer["name"] for consumer in fleet.redis.xinfo_consumers(fleet.names.stream("default"), GROUP)]
    assert any(str(worker.pid) in name.decode() for name in readers), readers
    fleet.enqueue(5, fleet.plain)  # nobody published these
    sqlite_site.wait_for_counts(succeeded=25)
    sqlite_site.wait(lambda: (fleet.length(), fleet.pending()) == (0, 0), "nothing is left in Redis")
    worker.send(signal.SIGTERM)
    assert worker.wait() == 0


def test_draining_ends_when_the_database_has_nothing_more_not_when_the_stream_is_empty(
    sqlite_site: Site, fleet: Fleet
) -> None:
    sqlite_site.tasks(TASKS)
    fleet.enqueue(3)
    fleet.enqueue(3, fleet.plain)
    sqlite_site.drain("--processes", "1", "--redis", fleet.options.url, **environment(fleet))
    assert sqlite_site.counts() == {"succeeded": 6}
    assert (fleet.length(), fleet.pending()) == (0, 0)
