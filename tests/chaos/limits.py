"""A fleet under limits, and the witnesses that tell whether they were kept.

There are three: the audit log, as the stretches of time between a claim and its end; a count of the running jobs that
every process takes while it holds some; and a directory for each limit, in which a process has a file for as long as
it holds a job.
"""

import random
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from pathlib import Path

from holdfast.domain.job import Claimed, NewJob
from holdfast.domain.outcome import Released, Succeeded
from holdfast.stores.sql_store import SqlStore
from tests.chaos.crew import SIZE
from tests.chaos.databases import assert_verified, deadlocks, is_sqlite, opened, query
from tests.chaos.diary import Diary, Worker, assert_log_agrees
from tests.servers.waiting import wait_until

TASKS = ("fetch", "parse", "store")
BEGUN = "begun"  # a directory beside the places


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
        limit = random.choice(list(self._places))
        assert self._running(limit) <= limit.most
        for file in files:
            file.unlink()

    def _running(self, limit: Limit) -> int:
        statement = f"SELECT count(*) FROM holdfast_jobs WHERE state = 'running' AND {limit.column} = '{limit.name}'"
        with self._store.database.engine.connect() as connection:
            return int(connection.exec_driver_sql(statement).scalar_one())


def work(number: int, url: str, places: Path, limits: Sequence[Limit]) -> Diary:
    """Claim as much as there is, hold it for the length of a look around, and settle it. All begin together."""
    chance = random.Random(number)
    with opened(url) as store:
        begun = places.with_name(BEGUN)
        (begun / str(number)).touch()
        wait_until(lambda: len(list(begun.iterdir())) == SIZE, what="every process has its store open")
        watchman = Watchman(store, places, limits)
        worker = Worker(store, f"worker-{number}")
        while batch := worker.next_batch(chance.randint(1, 10)):
            try:
                watchman.watch(batch)
            finally:  # or the others would wait for a lease that nobody ends
                worker.settle((job, Succeeded() if chance.random() < 0.9 else Released()) for job in batch)
        return worker.diary


def prepare(store: SqlStore, tmp_path: Path, limits: Sequence[Limit]) -> Path:
    (tmp_path / BEGUN).mkdir()
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


def most_at_once(attempts: Sequence[Stretch], since: str = "") -> int:
    """How many lay over each other at most when, after `since`, one of them was claimed."""
    # At equal times an end comes first: the row had left `running` before the claim could be made.
    moments = sorted([(began, 1) for began, _ in attempts] + [(ended, -1) for _, ended in attempts])
    most = running = 0
    for moment, change in moments:
        running += change
        if change > 0 and moment > since:
            most = max(most, running)
    return most


def now(url: str) -> str:
    if is_sqlite(url):
        return "strftime('%Y-%m-%dT%H:%M:%f', 'now') || '999Z'"
    return """to_char(clock_timestamp() AT TIME ZONE 'UTC', 'YYYY-MM-DD"T"HH24:MI:SS.US"Z"')"""


def assert_kept(url: str, limits: Sequence[Limit], diaries: Sequence[Diary], jobs: int) -> None:
    for limit in limits:
        assert most_at_once(stretches(url, limit)) == limit.most
    assert query(url, "SELECT state, count(*) FROM holdfast_jobs GROUP BY state") == [("succeeded", jobs)]
    assert_log_agrees(url, diaries)
    assert_verified(url)
    assert deadlocks(url) == 0
