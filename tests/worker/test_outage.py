"""Postgres goes away under working workers: they come back by themselves, and nothing is charged for it."""

import uuid
from collections.abc import Iterator
from datetime import UTC, datetime
from pathlib import Path

import pytest
from sqlalchemy import create_engine

from holdfast.stores.upgrade import upgrade
from holdfast.throwaway.postgres import PostgresServer
from holdfast.throwaway.process import free_port
from tests.chaos.databases import query
from tests.servers.waiting import wait_until
from tests.worker.lease_clock import LeaseClock
from tests.worker.notes import NOTE, notes
from tests.worker.site import Site, WorkerProcess

LEASE = 60.0
TASKS = (
    NOTE
    + """
@app.task
def steady():
    note("started")
    time.sleep(0.1)
    note("ran")

@app.task
def held():
    note("started")
    while not Path(__file__).with_name("go").exists():
        time.sleep(0.02)
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


def wait_until_all_succeeded(site: Site) -> None:
    try:
        wait_until(lambda: all_succeeded(site), what="all jobs have succeeded")
    except TimeoutError as error:
        states = query(site.url, "SELECT state, lease_owner, count(*) FROM holdfast_jobs GROUP BY 1, 2")
        raise AssertionError(f"{error}: {states}") from None


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


def test_workers_live_through_a_crash_of_postgres_and_charge_nothing(site: Site, server: PostgresServer) -> None:
    workers = [site.worker("--processes", "2"), site.worker("--processes", "2")]
    lease = 3600.0  # outlives the outage
    held = site.enqueue("held", priority=1, lease_seconds=lease)
    ids = [held, *site.enqueue_many("steady", 100, lease_seconds=lease)]
    site.wait(lambda: len(notes(site, "ran")) >= 10, "some jobs have run")
    server.restart("immediate")
    assert not all_succeeded(site)
    site.tell("go")
    wait_until_all_succeeded(site)
    assert_nobody_paid_for_it(site, workers)
    # What had succeeded when the store went away was reported when it came back, not run again.
    assert sorted(job for job, _attempt in notes(site, "ran")) == sorted(ids)


def jump_with_the_next_start(site: Site, seconds: float) -> None:
    """The store's clock will be ahead once Postgres has started again, as if it had been away for so long."""
    query(
        site.url,
        "CREATE OR REPLACE FUNCTION holdfast_now() RETURNS timestamptz LANGUAGE sql VOLATILE AS $$"
        f" SELECT clock_timestamp() + CASE WHEN pg_postmaster_start_time() > '{datetime.now(UTC).isoformat()}'"
        f" THEN interval '{seconds} seconds' ELSE interval '0' END $$",
    )


def lost_leases(workers: list[WorkerProcess]) -> set[str]:
    lines = [line for worker in workers for line in worker.lines()]
    return {line["job_id"] for line in lines if line["event"] == "lease cannot be confirmed any more"}


def test_outage_longer_than_a_lease_charges_nothing_reaps_nobody_and_a_newcomer_waits_for_its_end(
    site: Site, server: PostgresServer
) -> None:
    """The clocks of the store and of the workers jump while Postgres is away."""
    clock = LeaseClock(site.folder / "clock")
    workers = [site.worker("--processes", "2", program=clock.program) for _ in range(2)]
    site.enqueue_many("steady", 60)
    longs = [site.enqueue("held", priority=1) for _ in range(2)]
    site.wait(lambda: {job for job, _ in notes(site, "started")} >= set(longs), "the long jobs have started")
    site.wait(lambda: len(notes(site, "ran")) >= 5, "some of the short ones have run")
    jump_with_the_next_start(site, 2 * LEASE)
    server.stop("immediate")
    try:
        newcomer = site.worker("--processes", "1")
        newcomer.wait_for_log("worker waits after an error")
        clock.advance(LEASE)
        wait_until(lambda: lost_leases(workers) >= set(longs), what="the leases of the long jobs run out")
    finally:
        server.start()
    site.tell("go")
    wait_until_all_succeeded(site)
    newcomer.wait_for_log(", all queues, ")
    assert_nobody_paid_for_it(site, [*workers, newcomer])
    for job in longs:
        assert event_names(site, job) == ["enqueued", "claimed", "released", "claimed", "succeeded"]


def test_worker_told_to_fail_fast_ends_with_3_when_the_store_is_away(tmp_path: Path, sqlite_url: str) -> None:
    with Site(tmp_path, sqlite_url) as site:
        site.tasks(TASKS)
        nobody = f"postgresql://holdfast@127.0.0.1:{free_port()}/nowhere"
        worker = site.worker("--processes", "1", "--fail-fast", url=nobody)
        assert worker.wait() == 3
        assert "Connection refused" in worker.text()
