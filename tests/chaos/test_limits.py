"""Limits of sources and queues hold across the fleet, at every moment, and do not keep the work from being done.

Three witnesses: the audit log, as the stretches of time between a claim and its end; a count of the running jobs that
every process takes while it holds some; and a directory for each limit, in which a process has a file for as long as
it holds a job.
"""

import random
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from itertools import pairwise
from pathlib import Path

import pytest

from holdfast.domain.job import Claimed, NewJob
from holdfast.domain.outcome import Released, Succeeded
from holdfast.stores.sql_store import SqlStore
from tests.chaos.crew import Crew
from tests.chaos.databases import assert_verified, deadlocks, is_sqlite, opened, query
from tests.chaos.diary import Diary, Worker, assert_log_agrees
from tests.servers.waiting import wait_until

TASKS = ("fetch", "parse", "store")


@dataclass(frozen=True)
class Limit:
    """At most so many jobs of this source, or of this queue, may run at once."""

    column: str
    name: str
    most: int

    def covers(self, job: Claimed) -> bool:
        return self.name == (job.source if self.column == "source" else job.queue)

    def impose(self, store: SqlStore) -> None:
        if self.column == "source":
            store.set_source(self.name, max_concurrent=self.most)
        else:
            store.limit_queue(self.name, self.most)


class Watchman:
    """Counts, in the database and outside of it, while his process holds jobs."""

    def __init__(self, store: SqlStore, places: Path, limits: Sequence[Limit]) -> None:
        self._store = store
        self._places = {limit: places / f"{limit.column}-{limit.name}" for limit in limits}

    def watch(self, jobs: Iterable[Claimed]) -> None:
        files = [place / job.job_id for job in jobs for limit, place in self._places.items() if limit.covers(job)]
        for file in files:
            file.touch(exist_ok=False)
        for limit, place in self._places.items():
            assert len(list(place.iterdir())) <= limit.most
            assert self._running(limit) <= limit.most
        for file in files:
            file.unlink()

    def _running(self, limit: Limit) -> int:
        statement = f"SELECT count(*) FROM holdfast_jobs WHERE state = 'running' AND {limit.column} = '{limit.name}'"
        with self._store.database.engine.connect() as connection:
            return int(connection.exec_driver_sql(statement).scalar_one())


def work(number: int, url: str, places: Path, limits: Sequence[Limit]) -> Diary:
    """Claim as much as there is, hold it for the length of a look around, and settle it."""
    chance = random.Random(number)
    with opened(url) as store:
        watchman = Watchman(store, places, limits)
        worker = Worker(store, f"worker-{number}")
        while batch := worker.next_batch(chance.randint(1, 10)):
            try:
                watchman.watch(batch)
            finally:  # or the others would wait for a lease that nobody ends
                worker.settle((job, Succeeded() if chance.random() < 0.9 else Released()) for job in batch)
        return worker.diary


def prepare(store: SqlStore, tmp_path: Path, limits: Sequence[Limit]) -> Path:
    for limit in limits:
        limit.impose(store)
        (tmp_path / "places" / f"{limit.column}-{limit.name}").mkdir(parents=True)
    return tmp_path / "places"


def enqueue(store: SqlStore, count: int, *, queues: Sequence[str] = ("a", "b"), source: str | None = None) -> None:
    """Over several tasks, priorities and queues: a limit is shared by all of them."""
    chance = random.Random(count)
    store.enqueue_many(
        [
            NewJob(task=chance.choice(TASKS), queue=chance.choice(queues), priority=chance.randint(0, 2), source=source)
            for _ in range(count)
        ]
    )


Stretch = tuple[str, str]  # from the claim to the end, as times of one fixed width


def stretches(url: str, limit: Limit) -> list[Stretch]:
    """All attempts under the limit, in the order they were claimed."""
    time = "{}" if is_sqlite(url) else """to_char({} AT TIME ZONE 'UTC', 'YYYY-MM-DD"T"HH24:MI:SS.US"Z"')"""
    rows = query(
        url,
        f"""
        SELECT {time.format("claimed.at")}, {time.format("ended.at")}
        FROM holdfast_jobs j
        JOIN holdfast_events claimed ON claimed.job_id = j.id AND claimed.event = 'claimed'
        JOIN holdfast_events ended ON ended.job_id = j.id AND ended.seq = claimed.seq + 1
        WHERE j.{limit.column} = '{limit.name}' ORDER BY 1""",
    )
    return [(began, ended) for began, ended in rows]


def most_at_once(stretches: Iterable[Stretch], since: str = "") -> int:
    """How many lay over each other at most when, after `since`, one of them was claimed."""
    # At equal times an end comes first: the row had left `running` before the claim could be made.
    moments = sorted([(began, 1) for began, _ in stretches] + [(ended, -1) for _, ended in stretches])
    most = running = 0
    for moment, change in moments:
        running += change
        if change > 0 and moment > since:
            most = max(most, running)
    return most


def assert_kept(url: str, limits: Sequence[Limit], diaries: Sequence[Diary], jobs: int) -> None:
    for limit in limits:
        assert most_at_once(stretches(url, limit)) == limit.most
    assert query(url, "SELECT state, count(*) FROM holdfast_jobs GROUP BY state") == [("succeeded", jobs)]
    assert_log_agrees(url, diaries)
    assert_verified(url)
    assert deadlocks(url) == 0
    # The limits were contended: most of the fleet had its share.
    assert sum(1 for diary in diaries if diary.claims) > len(diaries) // 2


def test_limit_of_one_on_a_source_and_on_a_queue_through_two_thousand_claims(
    store: SqlStore, store_url: str, crew: Crew, tmp_path: Path
) -> None:
    limits = [Limit("source", "narrow", 1), Limit("queue", "single", 1)]
    places = prepare(store, tmp_path, limits)
    enqueue(store, 950, source="narrow")
    enqueue(store, 950, queues=["single"])
    diaries = crew.run(work, store_url, places, limits)
    assert sum(len(diary.claims) for diary in diaries) >= 2_000
    assert_kept(store_url, limits, diaries, 1_900)
    for limit in limits:
        assert all(ended <= began for (_, ended), (began, _) in pairwise(stretches(store_url, limit)))


def test_limit_of_three_is_used_up_and_not_exceeded(
    store: SqlStore, store_url: str, crew: Crew, tmp_path: Path
) -> None:
    limits = [Limit("source", "narrow", 3), Limit("queue", "triple", 3)]
    places = prepare(store, tmp_path, limits)
    enqueue(store, 200, source="narrow")
    enqueue(store, 200, queues=["triple"])
    assert_kept(store_url, limits, crew.run(work, store_url, places, limits), 400)


def test_job_under_two_limits_obeys_both(store: SqlStore, store_url: str, crew: Crew, tmp_path: Path) -> None:
    """And jobs under one of them, and under none, go on beside it."""
    limits = [Limit("source", "narrow", 1), Limit("source", "wide", 4), Limit("queue", "double", 2)]
    places = prepare(store, tmp_path, limits)
    enqueue(store, 100, queues=["double", "a"], source="narrow")
    enqueue(store, 100, queues=["double"], source="wide")
    enqueue(store, 50, queues=["double"])
    enqueue(store, 50, source="ungoverned")
    enqueue(store, 100)
    diaries = crew.run(work, store_url, places, limits)
    for limit in limits:
        assert most_at_once(stretches(store_url, limit)) <= limit.most
    assert store.counts() == {"succeeded": 400}
    assert_log_agrees(store_url, diaries)
    assert_verified(store_url)
    assert deadlocks(store_url) == 0


@pytest.mark.parametrize("column", ["source", "queue"])
def test_limit_that_is_lowered_while_everybody_claims(
    column: str, store: SqlStore, store_url: str, crew: Crew, tmp_path: Path
) -> None:
    wide, narrow = Limit(column, "narrow", 4), Limit(column, "narrow", 1)
    places = prepare(store, tmp_path, [wide])
    enqueue(store, 300, source="narrow" if column == "source" else None, queues=["narrow"])
    with crew.working(work, store_url, places, [wide]) as fleet:
        wait_until(lambda: store.counts().get("succeeded", 0) >= 50, what="the work is under way")
        narrow.impose(store)
        [(lowered,)] = query(store_url, f"SELECT {now(store_url)}")
        assert store.counts().get("succeeded", 0) < 300
        diaries = fleet.results()
    attempts = stretches(store_url, narrow)
    assert most_at_once(attempts) <= wide.most
    assert most_at_once(attempts, since=lowered) == narrow.most
    assert store.counts() == {"succeeded": 300}
    assert_log_agrees(store_url, diaries)
    assert_verified(store_url)


def now(url: str) -> str:
    if is_sqlite(url):
        return "strftime('%Y-%m-%dT%H:%M:%f', 'now') || '999Z'"
    return """to_char(clock_timestamp() AT TIME ZONE 'UTC', 'YYYY-MM-DD"T"HH24:MI:SS.US"Z"')"""


def test_limit_of_nothing_lets_nobody_in(store: SqlStore, store_url: str, crew: Crew, tmp_path: Path) -> None:
    closed = [Limit("source", "closed", 0), Limit("queue", "shut", 0)]
    places = prepare(store, tmp_path, closed)
    enqueue(store, 50, source="closed")
    enqueue(store, 50, queues=["shut"])
    with crew.working(work, store_url, places, closed) as fleet:
        for limit in closed:
            assert stretches(store_url, limit) == []
        store.cancel([job.id for job in store.jobs(limit=1000).items])
        assert [diary.claims for diary in fleet.results()] == [[]] * crew.size
