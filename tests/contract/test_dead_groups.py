"""Dead letters by cause."""

from __future__ import annotations

import pytest

from holdfast.domain.errors import InvalidInput
from holdfast.domain.lifecycle import State
from holdfast.domain.outcome import Failed, JobError
from holdfast.stores.sql_store import SqlStore
from tests.contract.ground import ByHand, Clock
from tests.contract.steps import job_in, settle_well, start

HOSTILE = ("'; DROP TABLE holdfast_jobs; --", "<script>alert(1)</script>", '%s :most {x} \\ "ü"')


def die(store: SqlStore, message: str, code: str = "boom", **options: str) -> str:
    held = start(store, **options)
    settle_well(store, held, Failed(JobError(code, message, retryable=False)))
    return held.job_id


def test_one_cause_is_one_group_with_its_newest_job_as_example(store: SqlStore, clock: Clock) -> None:
    die(store, "no item 1")
    clock.move(1)
    die(store, "no item 2", task="other")
    clock.move(1)
    newest = die(store, "no item 3")
    job_in(store, State.SUCCEEDED)
    found = store.dead_groups()
    assert [(group.task, group.code, group.count) for group in found.groups] == [
        ("add", "boom", 2),
        ("other", "boom", 1),
    ]
    [first, _] = found.groups
    assert (first.message, first.example_id, first.newest_at) == ("no item 3", newest, store.job(newest).finished_at)
    assert (found.looked_at, found.at_least) == (3, False)


def test_whatever_stands_in_task_code_and_message_is_only_text(store: SqlStore) -> None:
    for name in HOSTILE:
        die(store, f"about {name}", name, task=name, queue=name)
    found = store.dead_groups()
    assert {(group.task, group.code) for group in found.groups} == {(name, name) for name in HOSTILE}
    [only] = store.dead_groups([HOSTILE[0]]).groups
    assert only.message == f"about {HOSTILE[0]}"
    assert store.dead_groups(["nobody"]).groups == store.dead_groups([]).groups == ()


def test_only_the_newest_so_many_are_looked_at(store: SqlStore, clock: Clock) -> None:
    for number in range(4):
        die(store, f"cause {chr(97 + number)}", queue=("a", "b")[number % 2])
        clock.move(1)
    found = store.dead_groups(most=3)
    assert {group.message for group in found.groups} == {"cause b", "cause c", "cause d"}
    assert (found.looked_at, found.at_least) == (3, True)
    some = store.dead_groups(["a", "b", "b"], most=1)
    assert {group.message for group in some.groups} == {"cause c", "cause d"}
    assert (some.looked_at, some.at_least) == (2, True)
    assert not store.dead_groups(["a", "b"], most=3).at_least
    with pytest.raises(InvalidInput):
        store.dead_groups(most=0)


def test_an_error_that_was_typed_by_hand_keeps_nobody_from_looking(store: SqlStore, by_hand: ByHand) -> None:
    dead = job_in(store, State.FAILED)
    for typed in ("[]", '"just text"', '{"code": 7, "message": {"a": 1}}', "null"):
        by_hand("UPDATE holdfast_jobs SET last_error = :typed WHERE state = 'failed'", typed=typed)
        [group] = store.dead_groups().groups
        assert (group.count, group.example_id) == (1, dead)
