"""What a review of the worker found: each of these was wrong once."""

from __future__ import annotations

import time
from collections.abc import Callable
from datetime import UTC, datetime
from typing import Any, cast

import pytest

from holdfast.domain.answers import Beat, Beaten, Settled, Status
from holdfast.domain.errors import InvalidInput, StoreUnavailable
from holdfast.domain.events import Events
from holdfast.domain.job import Claimed, ClaimedJobs
from holdfast.domain.logs import LogLine, Stream
from holdfast.domain.manifest import Kind, TaskInfo
from holdfast.domain.outcome import Failed, Outcome, Released, Report
from holdfast.domain.timing import choose
from holdfast.periodic.duties import Duties
from holdfast.periodic.retrying import Retrying
from holdfast.ports import Store
from holdfast.runners.frames import Decoder
from holdfast.runners.pool import Pool, PoolSize
from holdfast.runners.process import Exit, RunnerProcess
from holdfast.worker.heartbeats import Heartbeats
from holdfast.worker.job_logs import MOST_BYTES, JobLogs
from holdfast.worker.leases import Held, LeaseBook
from holdfast.worker.pickup import FAIR_SECONDS, Pickup, Room
from holdfast.worker.reports import Ended
from holdfast.worker.runs import Runs
from tests.servers.waiting import DEADLINE_SECONDS
from tests.unit.worker.test_leases import claimed

EVENTS = Events()


def nothing() -> None:
    pass


def until(condition: Callable[[], bool]) -> None:
    deadline = time.monotonic() + DEADLINE_SECONDS
    while not condition():
        assert time.monotonic() < deadline
        time.sleep(0.001)


# heartbeats


class PickyStore:
    """Refuses progress, as the real one does when it is too large."""

    def __init__(self, status: Status = Status.APPLIED, error: Exception | None = None) -> None:
        self.status = status
        self.error = error or InvalidInput("progress", "is too large")

    def heartbeat(self, beats: list[Beat]) -> list[Beaten]:
        if any(beat.progress is not None for beat in beats):
            raise self.error
        return [Beaten(beat.job_id, self.status) for beat in beats]


def beaten(store: PickyStore, book: LeaseBook, at: float) -> Heartbeats:
    heard: list[Beaten] = []
    beats = Heartbeats(
        lambda: cast(Store, store),
        book,
        EVENTS,
        nothing,
        lambda _held, answer: heard.append(answer),
        Retrying("heartbeat", EVENTS, 1.0),
    )
    beats.step(at)

    def answered() -> bool:
        beats.step(at + 0.001)
        return bool(heard)

    until(answered)
    beats.close()
    return beats


@pytest.mark.parametrize("error", [None, UnicodeEncodeError("latin-1", "x", 0, 1, "not in range")], ids=str)
def test_progress_that_cannot_be_stored_costs_nobody_a_lease(error: Exception | None) -> None:
    book = LeaseBook(choose(60.0))
    noisy, neighbour = (book.add(claimed(number), TaskInfo("x"), 1000.0) for number in (1, 2))
    noisy.progress, noisy.progress_waits = {"note": "x" * 10_000}, True
    beaten(PickyStore(error=error), book, 1020.0)
    assert (noisy.confirmed_at, neighbour.confirmed_at) == (1020.0, 1020.0)


def test_a_lease_whose_row_its_own_transaction_has_locked_is_tried_again_soon() -> None:
    """It counts as renewed meanwhile; but after a rollback the reaper may be there before a heartbeat 20 s later."""
    book = LeaseBook(choose(60.0))
    held = book.add(claimed(), TaskInfo("x"), 1000.0)
    held.completing = True
    beaten(PickyStore(Status.BUSY), book, 1020.0)
    assert held.confirmed_at == 1020.0
    assert held.beat_at <= 1021.1


# runners


@pytest.mark.parametrize("garbage", [b"what is this\n", b"7\n", b"\xff\n", b"[" * 100_000 + b"\n"])
def test_what_a_runner_said_before_garbage_is_heard(garbage: bytes) -> None:
    decoder = Decoder()
    assert decoder.feed(b'{"t":"done"}\n' + garbage + b'{"t":"started"}\n') == [{"t": "done"}]
    assert decoder.is_broken
    assert decoder.feed(b'{"t":"done"}\n') == []


def test_the_end_by_a_signal_without_a_name_can_be_told() -> None:
    assert str(Exit(None, 40)) == "was killed by signal 40"
    assert str(Exit(None, 9)) == "was killed by SIGKILL"


class FakeRunner:
    """As much of a runner process as a job needs."""

    kind = Kind.SYNC
    shared = False
    pid = 1
    stopping = False
    finished = 0
    free = 0
    open = False

    def __init__(self, *said: dict[str, Any]) -> None:
        self.jobs: dict[str, bool] = {}
        self.said = list(said)
        self.killed: str | None = None
        self.terminated = False
        self.ready = True

    def cancel(self, attempt_id: str, reason: str) -> None: ...

    def terminate(self) -> None:
        self.terminated = True

    def kill(self, why: str) -> None:
        self.killed = why

    def read_all(self) -> list[dict[str, Any]]:
        return self.said


class Stage:
    """Runs without a store: what it reports is kept."""

    def __init__(self) -> None:
        self.reported: dict[str, Outcome] = {}
        self.pool = Pool(PoolSize("x", 1, 1, 1, 5.0), lambda _runner: None)
        self.book = LeaseBook(choose(60.0))
        self.runs = Runs(self.book, self.pool, EVENTS, self._report, lambda _lines: None, 5.0, 30.0)

    def _report(self, ended: Ended) -> None:
        self.reported[ended.held.id] = ended.outcome

    def runner(self, *said: dict[str, Any]) -> FakeRunner:
        runner = FakeRunner(*said)
        self.pool._runners.append(cast(RunnerProcess, runner))
        return runner

    def start(self, job: Claimed, runner: FakeRunner, at: float = 1000.0) -> Held:
        held = self.book.add(job, TaskInfo("x"), at)
        held.runner = cast(RunnerProcess, runner)
        self.runs.hear(cast(RunnerProcess, runner), {"t": "started", "id": held.id}, at)
        return held

    def ended(self, runner: FakeRunner, exit: Exit, at: float) -> None:
        self.runs.runner_ended(cast(RunnerProcess, runner), exit, at)


def test_a_dead_runner_that_said_nonsense_leaves_no_job_behind() -> None:
    stage = Stage()
    runner = stage.runner({"no": "kind"})
    held = stage.start(claimed(), runner)
    stage.ended(runner, Exit(None, 40), 1001.0)
    assert held.id in stage.reported
    assert len(stage.pool) == 0


def test_a_cancel_after_the_time_limit_does_not_put_off_the_kill() -> None:
    stage = Stage()
    runner = stage.runner()
    held = stage.start(claimed(timeout_seconds=10.0), runner)
    stage.runs.step(1010.0)
    assert runner.terminated
    assert held.kill_at == 1015.0
    stage.runs.heard_beat(held, Beaten(held.job.job_id, Status.APPLIED, cancel=True), 1011.0)
    stage.runs.step(1015.0)
    assert runner.killed == "did not stop"


def test_a_runner_that_dies_of_our_own_signal_is_nobodys_crash() -> None:
    """The job whose time was up had just ended, and the next one had begun."""
    stage = Stage()
    runner = stage.runner()
    late = stage.start(claimed(1, timeout_seconds=10.0), runner)
    stage.runs.step(1010.0)
    runner.jobs.pop(late.id)
    innocent = stage.start(claimed(2), runner, 1010.0)
    stage.ended(runner, Exit(None, 15), 1010.1)
    assert isinstance(stage.reported[innocent.id], Released)


def test_a_job_that_ended_in_time_is_heard_before_its_limit_is_enforced() -> None:
    """A supervisor that stood still for longer than the limit."""
    stage = Stage()
    runner = stage.runner()
    held = stage.start(claimed(timeout_seconds=10.0), runner)
    stage.runs.enforce(1020.0)
    done = {"t": "done", "id": held.id, "outcome": {"kind": "succeeded", "result": 1, "result_ref": None}, "usage": {}}
    stage.runs.hear(cast(RunnerProcess, runner), done, 1020.0)
    stage.runs.step(1020.0)
    assert not runner.terminated


def test_a_lost_lease_is_no_timeout() -> None:
    stage = Stage()
    runner = stage.runner()
    held = stage.start(claimed(timeout_seconds=10.0), runner)
    stage.runs.enforce(2000.0)
    stage.runs.step(2000.0)
    stage.ended(runner, Exit(None, 9), 2000.0)
    assert isinstance(stage.reported[held.id], Released)
    assert not isinstance(stage.reported[held.id], Failed)


def test_what_comes_too_late_to_be_started_is_given_back() -> None:
    stage = Stage()
    stage.runs.take([claimed(lease=1.0)], 1000.0)
    stage.runs.enforce(1005.0)
    assert len(stage.runs.hand) == 0
    assert [type(outcome) for outcome in stage.reported.values()] == [Released]


def test_a_runner_killed_before_it_was_ready_is_not_replaced_at_once() -> None:
    """A memory limit that the import alone exceeds."""
    stage = Stage()
    runner = stage.runner()
    runner.ready = False
    runner.killed = "memory limit"
    stage.pool.remove(cast(RunnerProcess, runner), 1000.0)
    assert stage.pool.wake_at(1000.0) == 1001.0


def test_a_process_that_cannot_be_started_is_not_asked_for_at_every_step(monkeypatch: pytest.MonkeyPatch) -> None:
    tried = []

    def no_process(*_arguments: object) -> None:
        tried.append(1)
        raise OSError(11, "Resource temporarily unavailable")

    monkeypatch.setattr("holdfast.runners.pool.RunnerProcess", no_process)
    pool = Stage().pool
    with pytest.raises(OSError, match="temporarily"):
        pool.adjust(1000.0)
    pool.adjust(1000.5)
    assert len(tried) == 1


# claims and duties


def test_a_rush_of_quick_jobs_does_not_pass_over_the_others_for_ever() -> None:
    asked: list[tuple[str, ...]] = []
    room = Room(["slow", "quick"], slots=1, quick=[], ahead=0)

    class Busy:
        def claim(self, _worker: str, limit: int, _queues: object, tasks: tuple[str, ...]) -> ClaimedJobs:
            asked.append(tasks)
            return ClaimedJobs(claimed(number) for number in range(limit))

    store = cast(Store, Busy())
    pickup = Pickup(lambda: store, "w", None, 2.0, lambda: {Kind.SYNC: room}, lambda _jobs, _at: None, EVENTS, nothing)

    def poll(now: float) -> None:
        before = len(asked)
        pickup.poll(now)
        if pickup.busy:
            until(lambda: len(asked) > before and pickup.poll(now).name != "WAITING")

    poll(1000.0)
    room = Room(["slow", "quick"], slots=0, quick=["quick"], ahead=64, most=64)
    poll(1000.1)
    poll(1000.1 + FAIR_SECONDS)  # asks nothing: the runners are left to get through what they have
    room = Room(["slow", "quick"], slots=1, quick=["quick"], ahead=63, most=64)
    poll(1000.2 + FAIR_SECONDS)
    poll(1000.3 + FAIR_SECONDS)
    assert asked == [("slow", "quick"), ("quick",), ("slow", "quick"), ("quick",)]
    pickup.close()


def test_a_lost_claim_is_given_back_even_if_the_first_try_fails() -> None:
    class Losing:
        def __init__(self) -> None:
            self.lost = [claimed()]
            self.away = True
            self.settled: list[Report] = []

        def recover(self, _worker: str) -> list[Claimed]:
            found, self.lost = self.lost, []  # as the real one: told once
            return found

        def settle(self, reports: list[Report]) -> list[Settled]:
            if self.away:
                raise StoreUnavailable("away")
            self.settled += reports
            return [Settled(report.job_id, report.attempt, Status.APPLIED) for report in reports]

    store = Losing()
    duties = Duties(
        lambda: cast(Store, store), "w", lambda: choose(60.0), EVENTS, nothing, list, cast(Any, None), cast(Any, None)
    )
    with pytest.raises(StoreUnavailable):
        duties._give_back(cast(Store, store))
    store.away = False
    duties._give_back(cast(Store, store))
    duties._give_back(cast(Store, store))
    assert len(store.settled) == 1
    duties.close()


def test_empty_lines_and_fields_take_memory_too() -> None:
    logs = JobLogs(cast(Any, None), nothing, Retrying("logs", EVENTS, 1.0))
    now = datetime.now(UTC)
    logs.add([LogLine("x", 1, number, now, Stream.LOG, "", None, {}) for number in range(100_000)])
    assert len(logs) < MOST_BYTES / 200
    logs.add([LogLine("x", 1, number, now, Stream.LOG, "", None, {"a": "b" * 10_000}) for number in range(2_000)])
    assert len(logs) < MOST_BYTES / 10_000
    logs.close()
