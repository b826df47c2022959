"""The database goes away under the workers and comes back: they ask again, and nothing is lost or done twice."""

from collections.abc import Iterator
from contextlib import ExitStack
from pathlib import Path

import pytest
from sqlalchemy import create_engine

from holdfast.domain.answers import Beat, Status
from holdfast.domain.job import NewJob
from holdfast.stores.sql_store import SqlStore
from holdfast.stores.upgrade import upgrade
from holdfast.throwaway.postgres import PostgresServer
from tests.chaos.crew import Crew
from tests.chaos.databases import connect, opened, query
from tests.chaos.diary import Diary, logged_claims, logged_endings
from tests.chaos.toil import Toiler, acknowledged_in, assert_nothing_lost, finish
from tests.servers.waiting import DEADLINE_SECONDS, wait_until

# Longer than the test: nobody's lease expires while the database is away.
LEASE_SECONDS = 600.0
TURNS = 25
CUT_ALL = """
    SELECT count(pg_terminate_backend(pid)) FROM pg_stat_activity
    WHERE datname = current_database() AND pid <> pg_backend_pid()"""
CUT_ALL_AND_WAIT = CUT_ALL.replace("(pid)", f"(pid, {DEADLINE_SECONDS * 1000:.0f})")
OVER = "over"  # a file beside those that the fleet writes
AN_HOUR_LATER = """
    CREATE OR REPLACE FUNCTION holdfast_now() RETURNS timestamptz LANGUAGE sql VOLATILE
    AS 'SELECT clock_timestamp() + interval ''1 hour'''"""


def toil(number: int, url: str, directory: Path) -> Diary:
    """Until the test has done what it does meanwhile, and a few turns in any case."""
    with opened(url) as store:
        toiler = Toiler(store, f"worker-{number}", directory / f"worker-{number}", LEASE_SECONDS)
        turns = 0
        while turns < TURNS or not (directory / OVER).exists():
            toiler.take_a_turn()
            turns += 1
        return toiler.worker.diary


def wait_for_progress(crew: Crew, directory: Path, lines: int) -> None:
    """Until so many lines have been written by all of the fleet together, and each of it has its store open: only what
    is done with that is asked for again."""

    def have_been_written() -> bool:
        files = list(directory.iterdir())
        return len(files) == crew.size and sum(len(file.read_bytes().splitlines()) for file in files) >= lines

    wait_until(have_been_written, what=f"the fleet has written {lines} lines")


def assert_told_the_truth(url: str, diaries: list[Diary]) -> None:
    """A claim whose answer was lost is nobody's; all else in the log was told to the one whom it concerns."""
    told = [note for diary in diaries for note in diary.claims]
    assert len(told) == len(set(told))
    assert set(told) <= set(logged_claims(url))
    endings = logged_endings(url)
    applied = [note for diary in diaries for note in diary.endings]
    replayed = [note for diary in diaries for note in diary.replays]
    assert sorted(applied + replayed) == sorted(endings)
    assert sum(diary.refused for diary in diaries) == 0


def finish_an_hour_later(url: str) -> None:
    query(url, AN_HOUR_LATER)
    with opened(url) as store:
        finish(store)


@pytest.fixture
def server() -> Iterator[PostgresServer]:
    with PostgresServer({"synchronous_commit": "on"}) as server:
        yield server


def test_server_that_crashes_keeps_what_it_acknowledged(server: PostgresServer, crew: Crew, tmp_path: Path) -> None:
    server.create_database("jobs")
    url = server.url("jobs")
    engine = create_engine(url)
    upgrade(engine)
    engine.dispose()
    with crew.working(toil, url, tmp_path) as fleet:
        wait_for_progress(crew, tmp_path, 200)
        server.restart("immediate")
        (tmp_path / OVER).touch()
        diaries = fleet.results()
    assert sum(diary.outages for diary in diaries) > 0
    assert_nothing_lost(url, acknowledged_in(tmp_path.iterdir()))
    assert_told_the_truth(url, diaries)
    finish_an_hour_later(url)
    assert_nothing_lost(url, acknowledged_in(tmp_path.iterdir()))


def test_connections_that_are_cut_again_and_again(postgres_url: str, crew: Crew, tmp_path: Path) -> None:
    cuts = 0
    with crew.working(toil, postgres_url, tmp_path) as fleet, connect(postgres_url, autocommit=True) as axe:
        for lines in range(50, 550, 50):
            wait_for_progress(crew, tmp_path, lines)
            [(cut,)] = axe.execute(CUT_ALL).fetchall()
            cuts += cut
        (tmp_path / OVER).touch()
        diaries = fleet.results()
    assert cuts > 0
    assert sum(diary.outages for diary in diaries) > 0
    assert_nothing_lost(postgres_url, acknowledged_in(tmp_path.iterdir()))
    assert_told_the_truth(postgres_url, diaries)
    finish_an_hour_later(postgres_url)
    assert_nothing_lost(postgres_url, acknowledged_in(tmp_path.iterdir()))


def test_connections_that_were_cut_while_idle_are_replaced_before_their_use(
    postgres_store: SqlStore, postgres_url: str
) -> None:
    """A hundred running jobs, a pool full of connections, all of them cut: the leases are still good."""
    postgres_store.enqueue_many([NewJob(task="long")] * 100)
    leases = postgres_store.claim("worker", 100)
    beats = [Beat(lease.job_id, lease.attempt, lease.lease_token) for lease in leases]
    with ExitStack() as all_at_once:
        for _ in range(5):
            all_at_once.enter_context(postgres_store.database.engine.connect())
    [(cut,)] = query(postgres_url, CUT_ALL_AND_WAIT)
    assert cut >= 5  # with those that the store keeps at hand
    for _ in range(5):
        assert {answer.status for answer in postgres_store.heartbeat(beats)} == {Status.APPLIED}
    assert query(postgres_url, "SELECT max(attempt), min(attempt) FROM holdfast_jobs") == [(1, 1)]
    assert postgres_store.refusals() == []
