"""What does not move is told with its reason, its evidence and the way out; what is healthy is not told."""

from __future__ import annotations

from datetime import timedelta
from typing import Any

import pytest

from holdfast.domain.lifecycle import State
from holdfast.domain.manifest import TaskInfo
from holdfast.domain.outcome import Released, Succeeded
from holdfast.domain.stuck import LIMIT_OVER
from holdfast.domain.views import Stuck, WorkerRow
from holdfast.stores.sql_store import SqlStore
from holdfast.stores.verbs import stuck as looking
from tests.contract.ground import ByHand, Clock
from tests.contract.steps import (
    beat,
    enqueue,
    enqueue_many,
    history,
    job_in,
    reap,
    settle_well,
    start,
)

LATE = 301.0


def keep_fleet(store: SqlStore, *tasks: str, queues: tuple[str, ...] | None = None, **row: Any) -> None:
    """One worker that is alive now and knows these tasks."""
    store.announce([TaskInfo(task) for task in tasks or ("add",)])
    values = {"id": "host-7-ab", "state": "polling", "slots": 4, "running": 4, **row}
    store.keep_worker(WorkerRow(host="host", pid=7, queues=queues, **values))


def found(store: SqlStore) -> dict[str, str]:
    return {stuck.job.id: stuck.code for stuck in store.stuck()}


def only(store: SqlStore) -> Stuck:
    [stuck] = store.stuck()
    assert stuck.advice
    return stuck


# waiting


def test_nothing_is_told_of_what_has_not_waited_for_long(store: SqlStore, clock: Clock) -> None:
    enqueue(store)
    enqueue(store, delay=10_000)
    store.pause_queue("default")
    clock.move(299)
    assert store.stuck() == []
    clock.move(2)
    assert only(store).code == "queue_paused"


def test_what_has_just_come_back_from_a_long_run_has_not_waited(store: SqlStore, clock: Clock) -> None:
    keep_fleet(store)
    claimed = start(store)
    for _ in range(20):
        clock.move(50)
        store.heartbeat([beat(claimed)])
    settle_well(store, claimed, Released("deploy"))
    clock.move(299)
    keep_fleet(store)
    assert store.stuck() == []
    clock.move(2)
    keep_fleet(store)
    assert found(store) == {claimed.job_id: "backlog"}


def test_a_paused_queue(store: SqlStore, clock: Clock) -> None:
    job_id = enqueue(store, queue="mail")
    clock.move(60)
    store.pause_queue("mail")
    clock.move(LATE)
    stuck = only(store)
    assert (stuck.job.id, stuck.reason) == (job_id, "its queue is paused")
    assert stuck.detail == "queue mail is paused since 5 min"
    assert stuck.advice == "holdfast queues resume mail"


@pytest.mark.parametrize(("limit", "detail"), [(1, "runs 1 of at most 1"), (0, "runs 0 of at most 0")])
def test_a_queue_at_its_limit(store: SqlStore, clock: Clock, limit: int, detail: str) -> None:
    claimed = start(store) if limit else None
    waits = enqueue(store)
    store.limit_queue("default", limit)
    clock.move(LATE)
    if claimed is not None:
        store.heartbeat([beat(claimed)])
    stuck = next(stuck for stuck in store.stuck() if stuck.job.id == waits)
    assert (stuck.code, stuck.reason) == ("queue_full", "its queue runs as many jobs as it may")
    assert detail in stuck.detail


def test_a_source_that_is_closed(store: SqlStore, clock: Clock) -> None:
    keep_fleet(store)
    off = enqueue(store, source="off")
    broken = enqueue(store, source="broken")
    full = enqueue(store, source="full")
    store.set_source("off", enabled=False)
    store.set_source("broken", paused_until=clock.now() + timedelta(days=1))
    store.set_source("full", max_concurrent=0)
    clock.move(LATE)
    by_id = {stuck.job.id: stuck for stuck in store.stuck()}
    assert {job_id: stuck.code for job_id, stuck in by_id.items()} == {
        off: "source_off",
        broken: "source_paused",
        full: "source_full",
    }
    assert by_id[off].reason == "its source is switched off"
    assert by_id[broken].reason == "its source is paused by an operator"
    assert by_id[broken].detail == "source broken is paused for another 24 h"
    assert by_id[full].detail == "source full runs 0 of at most 0"


def test_a_source_that_runs_as_many_as_it_may(store: SqlStore, clock: Clock) -> None:
    claimed = start(store, source="shop")
    waits = enqueue(store, source="shop")
    store.set_source("shop", max_concurrent=1)
    clock.move(LATE)
    store.heartbeat([beat(claimed)])
    stuck = next(stuck for stuck in store.stuck() if stuck.job.id == waits)
    assert (stuck.code, stuck.detail) == ("source_full", "source shop runs 1 of at most 1")


@pytest.mark.parametrize("straggler", [True, False])
def test_a_source_that_is_being_probed(store: SqlStore, by_hand: ByHand, clock: Clock, straggler: bool) -> None:
    """What was let in before the pause is no probe: nobody waits for it."""
    store.set_source("shop")
    claimed = start(store, source="shop")
    waits = enqueue(store, source="shop")
    store.set_source("shop", paused_until=clock.now() + timedelta(seconds=1 if straggler else -1))
    by_hand("UPDATE holdfast_sources SET failure_streak = breaker_threshold")
    clock.move(LATE)
    store.heartbeat([beat(claimed)])
    stuck = next(stuck for stuck in store.stuck() if stuck.job.id == waits)
    assert (stuck.reason == "its source is being probed after failures") is not straggler


def test_a_source_whose_rate_is_used_up(store: SqlStore, clock: Clock) -> None:
    store.set_source("shop", rate_limit_per_minute=1)
    enqueue(store, source="shop")
    waits = enqueue(store, source="shop")
    clock.move(LATE)
    keep_fleet(store)
    assert len(store.claim("ann", 10)) == 1
    assert (only(store).job.id, only(store).code) == (waits, "source_rate")
    assert "lets 1 jobs a minute start" in only(store).detail


def test_no_worker_at_all(store: SqlStore, clock: Clock) -> None:
    job_id = enqueue(store)
    clock.move(LATE)
    assert found(store) == {job_id: "no_worker"}
    assert "never announced" in only(store).detail
    keep_fleet(store)
    assert found(store) == {job_id: "backlog"}
    clock.move(91)
    assert found(store) == {job_id: "no_worker"}
    assert "last announced 2 min ago" in only(store).detail


@pytest.mark.parametrize("state", ["draining", "stopped"])
def test_a_worker_that_stops_takes_nothing_more(store: SqlStore, clock: Clock, state: str) -> None:
    enqueue(store)
    clock.move(LATE)
    keep_fleet(store, state=state)
    assert only(store).code == "no_worker"


def test_a_task_that_no_worker_knows(store: SqlStore, clock: Clock) -> None:
    keep_fleet(store, "known", "forgotten")
    never = enqueue(store, "never")
    forgotten = enqueue(store, "forgotten", delay=400)
    known = enqueue(store, "known")
    clock.move(LATE)
    keep_fleet(store, "known")
    assert found(store) == {never: "task_unknown", known: "backlog"}
    clock.move(401)
    keep_fleet(store, "known")
    by_id = {stuck.job.id: stuck for stuck in store.stuck()}
    assert by_id[never].reason == by_id[forgotten].reason == "no worker knows its task"
    assert "never was never announced" in by_id[never].detail
    assert "forgotten was last announced 12 min ago" in by_id[forgotten].detail
    assert (store.job(never).state, history(store, never)) == (State.PENDING, ["enqueued"])


def test_a_queue_that_no_worker_serves(store: SqlStore, clock: Clock) -> None:
    lonely = enqueue(store, queue="lonely")
    served = enqueue(store, queue="mail")
    clock.move(LATE)
    keep_fleet(store, queues=("mail", "web"))
    assert found(store) == {lonely: "queue_unserved", served: "backlog"}
    keep_fleet(store, queues=None)
    assert found(store) == {lonely: "backlog", served: "backlog"}


def test_a_backlog_says_how_many_are_ahead(store: SqlStore, clock: Clock) -> None:
    enqueue_many(store, 3, "urgent", priority=5)
    enqueue_many(store, 2, "older")
    enqueue(store, "closed", priority=9, source="off")
    store.set_source("off", enabled=False)
    clock.move(10)
    mine = enqueue(store)
    enqueue(store, delay=1)
    clock.move(LATE)
    keep_fleet(store, "add", "urgent", "older", "closed")
    stuck = next(stuck for stuck in store.stuck() if stuck.job.id == mine)
    assert stuck.reason == "due for more than five minutes and not claimed"
    assert stuck.detail == "1 workers serve queue default: all 4 slots are busy; 5 due jobs are ahead of it"
    keep_fleet(store, "add", "urgent", "older", "closed", running=1)
    assert "1 of 4 slots are busy" in next(s for s in store.stuck() if s.job.id == mine).detail


def test_a_group_is_shown_by_its_oldest_job_and_counted(
    store: SqlStore, clock: Clock, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(looking, "MOST_COUNTED", 20)
    oldest = enqueue(store, queue="mail", priority=-5)
    clock.move(1)
    enqueue_many(store, 9, queue="mail", priority=7)
    enqueue_many(store, 30, "other", queue="mail")
    enqueue_many(store, 4, queue="mail", source="shop")
    store.pause_queue("mail")
    clock.move(LATE)
    stuck = store.stuck()
    groups = {(group.job.task, group.job.source): group for group in stuck}
    assert len(stuck) == len(groups) == 3
    assert (groups["add", None].job.id, groups["add", None].count, groups["add", None].at_least) == (oldest, 10, False)
    assert (groups["other", None].count, groups["other", None].at_least) == (20, True)
    assert groups["add", "shop"].count == 4
    assert stuck[0].job.id == oldest
    assert len(store.stuck(limit=2)) == 2


def test_lanes_beyond_the_bound_are_not_looked_at(
    store: SqlStore, clock: Clock, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(looking, "MOST_LANES", 3)
    for number in range(5):
        enqueue(store, f"task{number}")
    clock.move(LATE)
    assert len(store.stuck()) == 3


# running


def test_an_expired_lease_and_no_reaper(store: SqlStore, clock: Clock) -> None:
    claimed = start(store)
    clock.move(74)
    assert store.stuck() == []
    clock.move(2)
    assert (only(store).job.id, only(store).reason) == (claimed.job_id, "its lease expired and nobody reaps")
    assert "no reaper has ever run" in only(store).detail


def test_an_expired_lease_and_a_reaper_that_is_gone(store: SqlStore, clock: Clock) -> None:
    claimed = start(store)
    reap(store, "bert")
    clock.move(120)
    assert found(store) == {claimed.job_id: "lease_expired"}
    assert "expired 1 min ago; the reaper last ran 2 min ago (bert)" in only(store).detail


def test_after_an_outage_every_lease_gets_its_time_once_more(store: SqlStore, clock: Clock) -> None:
    claimed = start(store)
    reap(store)
    clock.move(300)
    reap(store)  # it was away: from here on one full lease
    clock.move(30)
    reap(store)
    assert store.job(claimed.job_id).state is State.RUNNING
    assert store.stuck() == []


def test_an_expired_lease_that_the_reaper_cannot_take(store: SqlStore, clock: Clock, by_hand: ByHand) -> None:
    claimed = start(store)
    reap(store)
    clock.move(80)
    # The reaper came by, and somebody had the row locked.
    moment = clock.now().strftime("%Y-%m-%dT%H:%M:%S.%fZ")
    by_hand("UPDATE holdfast_duties SET ticked_at = :now WHERE name = 'reaper'", now=moment)
    assert only(store).job.id == claimed.job_id
    assert only(store).reason == "its lease expired and the reaper cannot take it"


def test_a_cancel_that_is_not_heeded(store: SqlStore, clock: Clock) -> None:
    claimed = start(store)
    store.cancel([claimed.job_id])
    for _ in range(2):
        clock.move(50)
        store.heartbeat([beat(claimed)])
        assert store.stuck() == []  # a minute of lease and two heartbeats have not passed
    clock.move(1)
    store.heartbeat([beat(claimed)])
    assert (only(store).job.id, only(store).code) == (claimed.job_id, "cancel_ignored")
    assert "requested 2 min ago; ann renews its lease" in only(store).detail


def run_for(store: SqlStore, clock: Clock, seconds: float, **options: Any) -> None:
    claimed = start(store, **options)
    clock.move(seconds)
    settle_well(store, claimed, Succeeded())


def run_on(store: SqlStore, clock: Clock, claimed: Any, seconds: float) -> None:
    """Let it run for so long, with heartbeats."""
    passed = 0.0
    while passed < seconds:
        step = min(50.0, seconds - passed)
        clock.move(step)
        store.heartbeat([beat(claimed)])
        passed += step


def test_a_job_that_runs_past_its_usual_time(store: SqlStore, clock: Clock) -> None:
    for number in range(25):
        run_for(store, clock, 100.0 if number == 0 else 30.0)  # one that took long is not what is usual
    run_for(store, clock, 1.0, task="other")
    claimed = start(store)
    run_on(store, clock, claimed, 89)
    assert store.stuck() == []
    run_on(store, clock, claimed, 2)
    assert found(store) == {claimed.job_id: "runs_long"}
    assert only(store).detail == "runs for 2 min; of the last 25 runs 95 % took at most 30 s (at ann)"


def test_quick_tasks_get_a_minute(store: SqlStore, clock: Clock) -> None:
    for _ in range(20):
        run_for(store, clock, 1.0)
    claimed = start(store)
    run_on(store, clock, claimed, 60)
    assert store.stuck() == []
    run_on(store, clock, claimed, 1)
    assert found(store) == {claimed.job_id: "runs_long"}


def test_without_enough_runs_on_record_an_hour_counts(store: SqlStore, clock: Clock) -> None:
    for _ in range(19):
        run_for(store, clock, 1.0)
    claimed = start(store)
    run_on(store, clock, claimed, 3600)
    assert store.stuck() == []
    run_on(store, clock, claimed, 1)
    assert found(store) == {claimed.job_id: "runs_long"}
    assert "only 19 runs of add are on record" in only(store).detail


def test_only_the_latest_runs_are_read(store: SqlStore, clock: Clock, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(looking, "MOST_RUNS_READ", 20)
    for seconds in [30.0] * 20 + [1.0] * 20:
        run_for(store, clock, seconds)
    claimed = start(store)
    run_on(store, clock, claimed, 61)
    assert only(store).detail.startswith("runs for 1 min; of the last 20 runs 95 % took at most 1 s")
    assert only(store).job.id == claimed.job_id


def test_job_whose_lease_is_renewed_past_its_time_limit_is_stuck(store: SqlStore, clock: Clock) -> None:
    claimed = start(store, timeout_seconds=30.0)
    start(store, "unlimited")
    run_on(store, clock, claimed, 30.0 + LIMIT_OVER)
    assert claimed.job_id not in found(store)
    run_on(store, clock, claimed, 1)
    [stuck] = [stuck for stuck in store.stuck() if stuck.job.id == claimed.job_id]
    assert (stuck.code, stuck.reason) == ("over_limit", "its time limit is over and its lease is still renewed")
    assert stuck.detail == "claimed 3 min ago, limit 30 s; ann renews it still"
    assert stuck.advice
    # It comes before jobs that merely run long.
    assert store.stuck()[0].code in ("over_limit", "lease_expired")


def test_job_that_a_runner_holds_without_starting_it_is_stuck(store: SqlStore, clock: Clock) -> None:
    claimed, neighbour = start(store), start(store, "other")
    detail = {"not_started": {claimed.job_id: 90}}
    for _ in range(2):
        clock.move(45)
        store.heartbeat([beat(claimed), beat(neighbour)])
    keep_fleet(store, id="ann", detail=detail)
    assert found(store) == {claimed.job_id: "not_started"}
    assert only(store).detail == "a runner of ann has held it for 2 min without starting it"


@pytest.mark.parametrize("told", [{}, [], None, {"not_started": 7}, {"not_started": [1]}, {"not_started": {"x": "y"}}])
def test_nonsense_in_the_row_of_a_worker_hides_no_stuck_job(store: SqlStore, clock: Clock, told: Any) -> None:
    claimed = start(store, timeout_seconds=1.0)
    detail = told if isinstance(told, dict) else {"not_started": told}
    run_on(store, clock, claimed, 1.0 + LIMIT_OVER + 1)
    keep_fleet(store, id="ann", detail=detail)
    assert found(store) == {claimed.job_id: "over_limit"}


def test_worker_that_is_gone_holds_no_unstarted_job(store: SqlStore, clock: Clock) -> None:
    claimed = start(store)
    keep_fleet(store, id="ann", detail={"not_started": {claimed.job_id: 90}})
    run_on(store, clock, claimed, 100)
    assert store.stuck() == []


def test_a_healthy_store_has_nothing_stuck(store: SqlStore) -> None:
    for state in State:
        job_in(store, state, delay=0)
    assert store.stuck() == []
