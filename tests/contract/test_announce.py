"""Workers announce their tasks; whoever enqueues without the code at hand finds the defaults here."""

import threading
from collections.abc import Callable

import pytest

from holdfast.domain.errors import InvalidInput
from holdfast.domain.manifest import Kind, OnLostLease, TaskInfo
from holdfast.stores.sql_store import SqlStore
from tests.contract.ground import ByHand, Clock
from tests.contract.steps import postgres_later

FETCH = TaskInfo(
    "fetch",
    "7",
    Kind.ASYNC,
    OnLostLease.CONTINUE,
    {"queue": "slow", "priority": -5, "retry": {"kind": "fixed", "base": 1.5}, "source": "shop", "note": "é"},
)
ADD = TaskInfo("add")


def test_what_was_announced_is_found(store: SqlStore) -> None:
    store.announce([FETCH, ADD])
    assert store.announced("fetch") == FETCH
    assert store.announced("add") == ADD
    assert store.announced("other") is None
    assert store.announced_tasks() == [ADD, FETCH]


def test_the_last_word_counts(store: SqlStore, clock: Clock, by_hand: ByHand) -> None:
    store.announce([FETCH, ADD])
    clock.move(60)
    changed = TaskInfo("fetch", "8", Kind.COMMAND, defaults={"queue": "fast"})
    store.announce([FETCH, changed])
    assert store.announced_tasks() == [ADD, changed]
    assert len(by_hand("SELECT DISTINCT announced_at FROM holdfast_tasks")) == 2


def test_to_announce_nothing_is_fine(store: SqlStore) -> None:
    store.announce([])
    assert store.announced_tasks() == []


@pytest.mark.parametrize(
    ("task", "names"),
    [
        (TaskInfo(""), "task"),
        (TaskInfo("a\x00"), "task"),
        (TaskInfo("a", "\ud800"), "version of task a"),
        (TaskInfo("a", defaults={"queue": object()}), "defaults of task a.queue"),
    ],
)
@postgres_later
def test_what_cannot_be_stored_is_named_and_nothing_is(store: SqlStore, task: TaskInfo, names: str) -> None:
    with pytest.raises(InvalidInput, match=names):
        store.announce([ADD, task])
    assert store.announced_tasks() == []


def test_many_who_announce_at_once_in_any_order_do_not_stop_each_other(open_again: Callable[[], SqlStore]) -> None:
    tasks = [TaskInfo(f"task-{number:03}") for number in range(100)]
    problems: list[Exception] = []

    def announce(store: SqlStore, order: list[TaskInfo]) -> None:
        try:
            for _ in range(15):
                store.announce(order)
        except Exception as problem:
            problems.append(problem)

    orders = (tasks, tasks[::-1], tasks[50:] + tasks[:50])
    threads = [threading.Thread(target=announce, args=(open_again(), order)) for order in orders]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert problems == []
    assert open_again().announced_tasks() == tasks
