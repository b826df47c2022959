"""Times at the edges of the calendar are validated and read in UTC, whatever zone the session or the caller is in."""

from collections.abc import Callable, Iterator
from datetime import UTC, datetime, timedelta, timezone
from typing import Any

import pytest
from sqlalchemy import create_engine

from holdfast.cli.verify import check
from holdfast.domain.errors import InvalidInput
from holdfast.domain.feed import AuditFilter, FeedPlace
from holdfast.domain.job import NewJob
from holdfast.domain.views import JobFilter
from holdfast.stores.postgres_times import FIRST, LAST, read_in_utc
from holdfast.stores.postgres_url import postgres_url as with_driver
from holdfast.stores.sql_store import SqlStore
from holdfast.wiring.sql import open_store
from tests.chaos.databases import is_sqlite, query
from tests.servers.pgbouncer import PgbouncerEndpoint

Open = Callable[[], SqlStore]
EAST, WEST = "Pacific/Kiritimati", "Etc/GMT+12"
EDGES = (LAST, LAST.replace(microsecond=0), LAST - timedelta(hours=13), FIRST, FIRST + timedelta(hours=11))


@pytest.fixture(params=["direct", "pooled", "engine"])
def open_way(request: pytest.FixtureRequest, postgres_url: str) -> Iterator[Open]:
    opened: list[SqlStore] = []

    def open_one() -> SqlStore:
        if request.param == "engine":
            store = open_store(create_engine(with_driver(postgres_url)))
        elif request.param == "pooled":
            pgbouncer: PgbouncerEndpoint = request.getfixturevalue("pgbouncer")
            store = open_store(pgbouncer.through(postgres_url))
        else:
            store = open_store(postgres_url)
        opened.append(store)
        return store

    yield open_one
    for store in opened:
        store.close()


def read_everything(store: SqlStore, job_id: str) -> datetime:
    """Every listing that shows a job; its `run_after`."""
    found = store.job(job_id)
    assert found in store.jobs().items
    assert job_id in {item.job.id for item in store.listed().items}
    assert store.search(JobFilter(task="work")).items
    for listing in (store.running, store.stuck, store.queues, store.workers, store.counts, store.state_counts):
        listing()
    assert store.events(job_id)
    assert store.audit(AuditFilter()).items
    assert store.feed(FeedPlace(FIRST)).items
    assert check(store).ok
    return found.run_after


@pytest.mark.parametrize("zone", [EAST, WEST])
def test_edges_are_read_in_utc_in_every_zone(postgres_url: str, open_way: Open, zone: str) -> None:
    query(postgres_url, f"ALTER DATABASE \"{postgres_url.rpartition('/')[2]}\" SET TimeZone = '{zone}'")
    store = open_way()
    for moment in EDGES:
        job_id = store.enqueue(NewJob(task="work", run_after=moment)).id
        read = read_everything(store, job_id)
        assert (read, read.tzinfo) == (moment, UTC)
    claimed = store.claim("w", 10)
    assert len(claimed) == 2, "those of the year 1 are due"


BEYOND = {
    "infinity": LAST,
    "-infinity": FIRST,
    "20000-01-01 00:00:00+00": LAST,
    "4713-01-01 00:00:00+00 BC": FIRST,
}


@pytest.mark.parametrize("column", ["run_after", "created_at", "updated_at"])
def test_raw_insert_beyond_the_calendar_is_refused(postgres_url: str, column: str) -> None:
    for text in BEYOND:
        with pytest.raises(Exception, match="holdfast_jobs_times"):
            query(postgres_url, f"INSERT INTO holdfast_jobs (task, {column}) VALUES ('work', '{text}')")
    assert query(postgres_url, "SELECT count(*) FROM holdfast_jobs") == [(0,)]


@pytest.mark.parametrize("zone", [EAST, WEST])
def test_row_beyond_the_calendar_breaks_no_listing(postgres_url: str, open_way: Open, zone: str) -> None:
    """From before the guards, or written while they were off."""
    query(postgres_url, f"ALTER DATABASE \"{postgres_url.rpartition('/')[2]}\" SET TimeZone = '{zone}'")
    store = open_way()
    for text, moment in BEYOND.items():
        job_id = store.enqueue(NewJob(task="work")).id
        query(
            postgres_url,
            "SET session_replication_role = replica;"
            f"UPDATE holdfast_jobs SET run_after = '{text}', created_at = '{text}' WHERE id = '{job_id}'",
        )
        assert store.job(job_id).run_after == moment
        assert store.job(job_id) in store.jobs().items
        assert job_id in {item.job.id for item in store.listed().items}


def test_odd_text_breaks_no_listing_on_sqlite(sqlite_url: str) -> None:
    store = open_store(sqlite_url)
    try:
        job_id = store.enqueue(NewJob(task="work")).id
        for odd in ("infinity", "soon", "", "2026-01-01 00:00:00", "9999-12-31T23:59:59-05:00"):
            query(sqlite_url, f"UPDATE holdfast_jobs SET created_at = '{odd}', heartbeat_at = '{odd}'")
            assert store.job(job_id) in store.jobs().items
            assert [item.job.id for item in store.listed().items] == [job_id]
    finally:
        store.close()


OUTSIDE = (
    datetime(9999, 12, 31, 23, 59, 59, tzinfo=timezone(timedelta(hours=-5))),
    datetime(1, 1, 1, tzinfo=timezone(timedelta(hours=14))),
)


@pytest.mark.parametrize("moment", OUTSIDE, ids=str)
def test_time_outside_the_calendar_of_utc_is_refused(store_url: str, moment: datetime) -> None:
    store = open_store(store_url)
    try:
        calls: dict[str, Callable[[], Any]] = {
            "run_after": lambda: store.enqueue(NewJob(task="work", run_after=moment)),
            "after": lambda: store.feed(FeedPlace(moment)),
            "before": lambda: store.audit(AuditFilter(), FeedPlace(moment)),
            "paused_until": lambda: store.set_source("shop", paused_until=moment),
        }
        for field, call in calls.items():
            with pytest.raises(InvalidInput, match=f"{field}.*between") as refused:
                call()
            assert refused.value.field == field
        assert store.counts() == {}
        assert is_sqlite(store_url) or query(store_url, "SELECT count(*) FROM holdfast_sources") == [(0,)]
    finally:
        store.close()


@pytest.mark.parametrize(
    ("text", "moment"),
    [
        *BEYOND.items(),
        ("10000-01-01 13:59:59.5+14", datetime(9999, 12, 31, 23, 59, 59, 500_000, tzinfo=UTC)),
        ("0001-12-31 12:00:00-12 BC", FIRST),
        ("1890-01-01 00:00:00.000001+05:53:28", datetime(1889, 12, 31, 18, 6, 32, 1, tzinfo=UTC)),
        ("2024-02-29 00:00:00+14", datetime(2024, 2, 28, 10, tzinfo=UTC)),
    ],
)
def test_text_of_the_server_is_read_exactly(text: str, moment: datetime) -> None:
    assert read_in_utc(text) == moment
