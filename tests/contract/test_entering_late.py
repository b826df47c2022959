"""Between the look at a source and its lock somebody else may enter: what counts is what is found under the lock."""

from collections.abc import Callable

import pytest

from holdfast.domain.entering import Door
from holdfast.domain.job import Claimed
from holdfast.domain.sources import Entered, Entry
from holdfast.stores.database import Row
from holdfast.stores.sql_store import SqlStore
from holdfast.stores.verbs import holds
from tests.contract.steps import beat, start


def enter(store: SqlStore, job: Claimed) -> Entered:
    return store.enter_source(beat(job), Entry("shop", 1, prepaid=False))


def test_who_saw_the_last_place_and_came_second_does_not_enter(
    store: SqlStore, open_again: Callable[[], SqlStore], monkeypatch: pytest.MonkeyPatch
) -> None:
    store.set_source("shop", max_concurrent=1)
    slow, quick, other = start(store), start(store), open_again()
    judge = holds._door
    answers: list[Entered] = []

    def judge_late(row: Row, source: str) -> Door:
        """The first who looks thinks about it until the other is inside."""
        monkeypatch.setattr(holds, "_door", judge)
        answers.append(enter(other, quick))
        return judge(row, source)

    monkeypatch.setattr(holds, "_door", judge_late)
    answers.append(enter(store, slow))
    assert answers == [Entered(True), Entered(False, 0.25, "concurrency")]
    assert store.source("shop").in_use == 1
