"""Postgres goes away under working workers: they come back by themselves, and nothing is charged for it."""

import time
import uuid
from collections.abc import Iterator
from pathlib import Path

import pytest
from sqlalchemy import create_engine

from holdfast.stores.upgrade import upgrade
from holdfast.throwaway.postgres import PostgresServer
from holdfast.throwaway.process import free_port
from tests.chaos.databases import query
from tests.worker.notes import NOTE, notes
from tests.worker.site import Site, WorkerProcess

TASKS = (
    NOTE
    + """
@app.task
def steady(seconds: float = 0.1):
    note("started")
    time.sleep(seconds)
    note("ran")
"""
)


@pytest.fixture(scope="module")
def server() -> Iterator[PostgresServer]:
    """Ours, to be stopped. What it has committed it must remember, however it is stopped."""
    with PostgresServer({"synchronous_commit": "on"}) as server:
        yield server


@pytest.fixture
def site(server: PostgresServer, tmp_path: Path) -> Iterator[Site]:
    name = f"outage_{uuid.uuid4().hex}"
    server.create_database(name)
    engine = create_engine(server.url(name))
    upgrade(engine)
    engine.dispose()
    with Site(tmp_path, server.url(name)) as site:
        site.tasks(TASKS)
        yield site


def all_succeeded(site: Site) -> bool:
    """Asked on a connection of its own: those of the store may be broken."""
    return query(site.url, "SELECT count(*) FROM holdfast_jobs WHERE state <> 'succeeded'") == [(0,)]


def wait_until_all_succeeded(site: Site, timeout: float) -> None:
    deadline = time.monotonic() + timeout
    while not all_succeeded(site):
        if time.monotonic() > deadline:
            states = query(site.url, "SELECT state, lease_owner, count(*) FROM holdfast_jobs GROUP BY 1, 2")
            raise AssertionError(f"not all jobs have succeeded: {states}")
        time.sleep(0.05)


def assert_nobody_paid_for_it(site: Site, workers: list[WorkerProcess]) -> None:
    assert all(worker.running for worker in workers)  # the very processes that were there before
    assert site.charged() == (0, 0)
    assert site.count_events("lease_lost") == 0
    refused = "SELECT count(*) FROM holdfast_refusals"
    assert query(site.url, refused) == [(0,)]


def event_names(site: Site, job: str) -> list[str]:
    return [
        event for (event,) in query(site.url, f"SELECT event FROM holdfast_events WHERE job_id = '{job}' ORDER BY seq")
    ]


def wait_for_seconds_since(site: Site, moment: float, seconds: float) -> None:
    """The one thing here that is nothing but time: how long the store is away."""
    site.wait(lambda: time.monotonic() >= moment + seconds, f"{seconds} s are over")


def test_workers_live_through_a_crash_of_postgres_and_charge_nothing(site: Site, server: PostgresServer) -> None:
    workers = [site.worker("--processes", "2"), site.worker("--processes", "2")]
    ids = site.enqueue_many("steady", 100)
    site.wait(lambda: len(notes(site, "ran")) >= 10, "some jobs have run")
    server.restart("immediate")
    assert not all_succeeded(site)
    wait_until_all_succeeded(site, 40)
    assert_nobody_paid_for_it(site, workers)
    # What had succeeded when the store went away was reported when it came back, not run again.
    assert sorted(job for job, _attempt in notes(site, "ran")) == sorted(ids)


def test_outage_longer_than_a_lease_charges_nothing_reaps_nobody_and_a_newcomer_waits_for_its_end(
    site: Site, server: PostgresServer
) -> None:
    workers = [site.worker("--processes", "2", LEASE_SECONDS="2") for _ in range(2)]
    site.enqueue_many("steady", 60, lease_seconds=2.0)
    longs = [site.enqueue("steady", {"seconds": 6.0}, lease_seconds=2.0, priority=1) for _ in range(2)]
    site.wait(lambda: {job for job, _ in notes(site, "started")} >= set(longs), "the long jobs have started")
    site.wait(lambda: len(notes(site, "ran")) >= 5, "some of the short ones have run")
    server.stop("immediate")
    stopped_at = time.monotonic()
    try:
        newcomer = site.worker("--processes", "1", LEASE_SECONDS="2")
        newcomer.wait_for_log("worker waits after an error")
        site.wait(lambda: "lease cannot be confirmed" in "".join(w.text() for w in workers), "leases run out")
        wait_for_seconds_since(site, stopped_at, 4.5)
    finally:
        server.start()
    wait_until_all_succeeded(site, 60)
    newcomer.wait_for_log(", all queues, ")
    assert_nobody_paid_for_it(site, [*workers, newcomer])
    for job in longs:
        enqueued, *between, claimed, succeeded = event_names(site, job)
        assert (enqueued, claimed, succeeded) == ("enqueued", "claimed", "succeeded")
        # A machine that starves its workers lets a lease of two seconds run out once more; that charges nothing, too.
        assert between == ["claimed", "released"] * max(1, len(between) // 2)


def test_worker_told_to_fail_fast_ends_with_3_when_the_store_is_away(tmp_path: Path, sqlite_url: str) -> None:
    with Site(tmp_path, sqlite_url) as site:
        site.tasks(TASKS)
        nobody = f"postgresql://holdfast@127.0.0.1:{free_port()}/nowhere"
        worker = site.worker("--processes", "1", "--fail-fast", url=nobody)
        assert worker.wait(20) == 3
        assert "Connection refused" in worker.text()
