"""The audit log as it grows: everything once, in order of time, page by page."""

from datetime import timedelta

import pytest

from holdfast.domain.errors import InvalidInput
from holdfast.domain.feed import FeedPlace, Transition
from holdfast.domain.lifecycle import State
from holdfast.domain.outcome import Succeeded
from holdfast.domain.retention import Group, Kept
from holdfast.stores.sql_store import SqlStore
from tests.contract.ground import Clock
from tests.contract.steps import claim_this, enqueue, enqueue_many, job_in, settle_well


def follow(store: SqlStore, place: FeedPlace, limit: int) -> list[Transition]:
    found: list[Transition] = []
    while True:
        page = store.feed(place, limit)
        found += page.items
        if not page.more:
            return found
        place = page.items[-1].place


def test_the_feed_holds_every_event_once_in_order_of_time(store: SqlStore, clock: Clock) -> None:
    start = FeedPlace(store.feed(None).now)
    ids = enqueue_many(store, 5)  # all at one moment
    clock.move(1)
    settle_well(store, claim_this(store, ids[2]), Succeeded())
    found = follow(store, start, limit=2)
    assert [item.place for item in found] == sorted(item.place for item in found)
    told = {(item.job_id, item.seq, item.event) for item in found}
    assert told == {(e.job_id, e.seq, e.event) for i in ids for e in store.events(i)}
    assert len(found) == 7
    assert {(item.task, item.queue) for item in found} == {(store.job(ids[0]).task, "default")}


def test_the_feed_begins_after_its_place(store: SqlStore, clock: Clock) -> None:
    enqueue(store)
    clock.move(1)
    later = enqueue(store)
    [last] = store.feed(FeedPlace(clock.now())).items
    assert last.job_id == later
    assert store.feed(last.place).items == ()


def test_what_was_pruned_still_says_its_task_and_queue(store: SqlStore, clock: Clock) -> None:
    start = FeedPlace(clock.now())
    job_id = job_in(store, State.SUCCEEDED)
    task = store.job(job_id).task
    clock.move(10)
    store.prune(Group(Kept.JOBS, "default", State.SUCCEEDED, 1.0), 10)
    told = [item for item in follow(store, start, 100) if item.job_id == job_id]
    assert told[-1].event == "pruned"
    assert (told[-1].task, told[-1].queue) == (task, "default")


def test_a_history_comes_page_by_page(store: SqlStore) -> None:
    job_id = enqueue(store)
    settle_well(store, claim_this(store, job_id), Succeeded())
    first = store.history(job_id, limit=2)
    assert first.after == "2"
    rest = store.history(job_id, after=2, limit=2)
    assert rest.after is None
    assert [*first.items, *rest.items] == store.events(job_id)


def test_a_place_that_is_none_is_refused(store: SqlStore) -> None:
    naive = store.feed(None).now.replace(tzinfo=None)
    with pytest.raises(InvalidInput):
        store.feed(FeedPlace(naive))
    with pytest.raises(InvalidInput):
        store.feed(FeedPlace(store.feed(None).now - timedelta(1)), limit=0)
