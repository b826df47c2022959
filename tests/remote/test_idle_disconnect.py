"""A kept HTTP connection that was closed while it was idle costs no caller anything."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from urllib.parse import urlsplit

import pytest

from holdfast.domain.job import NewJob
from holdfast.remote.store import RemoteStore
from holdfast.torture.proxy import FaultProxy
from holdfast.wiring.http import open_control_plane
from tests.remote.fleet import Fleet
from tests.serve.grounds import Served, serving
from tests.servers.waiting import DEADLINE_SECONDS

ROUNDS = 3
VERBS: dict[str, Callable[[RemoteStore, str], object]] = {
    "enqueue": lambda store, _: store.enqueue(NewJob(task="work")).created,
    "enqueue many": lambda store, _: len(store.enqueue_many([NewJob(task="work")] * 50)) == 50,
    "read": lambda store, job_id: store.job(job_id).id == job_id,
    "claim": lambda store, _: store.claim("worker", 1),
}


@pytest.fixture
def plane(sqlite_fleet: Fleet) -> Iterator[Served]:
    with serving(sqlite_fleet.url) as served:
        yield served


@pytest.fixture
def proxy(plane: Served) -> Iterator[FaultProxy]:
    parsed = urlsplit(plane.url)
    with FaultProxy((parsed.hostname or "", parsed.port or 0), seed=1) as proxy:
        yield proxy


@pytest.mark.parametrize("verb", VERBS)
def test_call_after_the_connection_was_reset_works(sqlite_fleet: Fleet, proxy: FaultProxy, verb: str) -> None:
    store = open_control_plane(f"http://127.0.0.1:{proxy.port}", sqlite_fleet.token, timeout_seconds=DEADLINE_SECONDS)
    try:
        job = store.enqueue(NewJob(task="work"))
        store.enqueue_many([NewJob(task="work")] * 10)
        for _ in range(ROUNDS):
            assert proxy.reset() == 1, "the connection of the last call is kept"
            assert VERBS[verb](store, job.id)
    finally:
        store.close()
