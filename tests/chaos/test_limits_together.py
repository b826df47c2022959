"""Limits of several, of both kinds at once, of none at all, and limits that change: kept at every moment, and the work
gets done.
"""

from pathlib import Path

import pytest

from holdfast.domain.job import NewJob
from holdfast.stores.sql_store import SqlStore
from tests.chaos.crew import Crew
from tests.chaos.databases import assert_verified, deadlocks, query
from tests.chaos.diary import assert_log_agrees
from tests.chaos.limits import Limit, assert_kept, enqueue, most_at_once, now, prepare, stretches, work
from tests.servers.waiting import wait_until


def test_limit_of_three_is_used_up_and_not_exceeded(
    store: SqlStore, store_url: str, crew: Crew, tmp_path: Path
) -> None:
    limits = [Limit("source", "narrow", 3), Limit("queue", "triple", 3)]
    places = prepare(store, tmp_path, limits)
    enqueue(store, 150, source="narrow")
    enqueue(store, 150, queues=["triple"])
    assert_kept(store_url, limits, crew.run(work, store_url, places, limits), 300)


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
    source = "narrow" if column == "source" else None
    enqueue(store, 100, source=source, queues=["narrow"])
    later = store.enqueue(NewJob(task="later", delay="1h")).id  # the fleet stays as long as there is anything to do
    with crew.working(work, store_url, places, [wide]) as fleet:
        wait_until(lambda: store.counts().get("succeeded", 0) >= 30, what="the work is under way")
        narrow.impose(store)
        [(lowered,)] = query(store_url, f"SELECT {now(store_url)}")
        enqueue(store, 100, source=source, queues=["narrow"])
        store.cancel([later])
        diaries = fleet.results()
    attempts = stretches(store_url, narrow)
    assert most_at_once(attempts) <= wide.most
    assert most_at_once(attempts, since=lowered) == narrow.most
    assert store.counts() == {"succeeded": 200, "cancelled": 1}
    assert_log_agrees(store_url, diaries)
    assert_verified(store_url)


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
