"""The rows of workers: what people see, and when it was seen."""

from dataclasses import replace

import pytest

from holdfast.domain.errors import InvalidInput
from holdfast.domain.views import WorkerRow, WorkerView
from holdfast.stores.sql_store import SqlStore
from tests.contract.ground import Clock

ROW = WorkerRow(
    id="host-7-ab",
    host="host",
    pid=7,
    state="polling",
    app="tasks:app",
    queues=("a", "b"),
    processes=2,
    slots=4,
    running=3,
    version="0.1.0",
    detail={"wake_up": "listening"},
)


def only(store: SqlStore) -> WorkerView:
    [view] = store.workers()
    return view


def test_a_worker_is_seen_as_it_described_itself(store: SqlStore, clock: Clock) -> None:
    store.keep_worker(ROW)
    view = only(store)
    assert all(getattr(view, name) == getattr(ROW, name) for name in WorkerRow.__dataclass_fields__)
    assert (view.started_at, view.beat_at, view.stopped_at) == (clock.now(), clock.now(), None)


def test_every_word_is_a_sign_of_life_and_the_start_stays(store: SqlStore, clock: Clock) -> None:
    started = clock.now()
    store.keep_worker(ROW)
    clock.move(20)
    store.keep_worker(replace(ROW, state="idle", running=0, queues=None, detail={}))
    view = only(store)
    assert (view.state, view.running, view.queues, view.detail) == ("idle", 0, None, {})
    assert (view.started_at, view.beat_at, view.stopped_at) == (started, clock.now(), None)


def test_a_worker_that_stopped_is_marked_once_and_listed_last(store: SqlStore, clock: Clock) -> None:
    store.keep_worker(replace(ROW, state="stopped"))
    stopped = clock.now()
    clock.move(5)
    store.keep_worker(replace(ROW, state="stopped"))
    store.keep_worker(replace(ROW, id="z"))
    assert [view.id for view in store.workers()] == ["z", ROW.id]
    assert store.workers()[1].stopped_at == stopped
    store.keep_worker(ROW)
    assert store.workers()[0].stopped_at is None


def test_the_dead_are_forgotten(store: SqlStore, clock: Clock) -> None:
    store.keep_worker(ROW)
    clock.move(86_000)
    store.keep_worker(replace(ROW, id="alive"))
    assert store.forget_workers() == 0
    clock.move(1000)
    assert store.forget_workers() == 1
    assert only(store).id == "alive"
    clock.move(10)
    assert store.forget_workers(5) == 1
    assert store.workers() == []


def test_a_row_that_cannot_be_stored_is_named(store: SqlStore) -> None:
    with pytest.raises(InvalidInput, match=r"row of worker host-7-ab\.host"):
        store.keep_worker(replace(ROW, host="a\x00b"))
    with pytest.raises(InvalidInput, match="worker"):
        store.keep_worker(replace(ROW, id=""))
