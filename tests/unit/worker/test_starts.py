"""Jobs that a runner holds and does not start: when the runner is killed, and which job is charged."""

from __future__ import annotations

from typing import cast

import pytest

from holdfast.domain.events import Event, Events, StartOverdue
from holdfast.domain.manifest import TaskInfo
from holdfast.domain.outcome import Cancelled, Crashed
from holdfast.runners.process import Exit, RunnerProcess
from holdfast.worker.leases import Held
from holdfast.worker.starts import CHECK_EVERY_SECONDS, SILENT_SECONDS, START_SECONDS, StartWatch
from tests.unit.worker.test_leases import claimed
from tests.unit.worker.test_review import FakeRunner, Stage

NOW = 1000.0


class Pinged(FakeRunner):
    """Counts pings; `answers` says whether its reader is alive."""

    is_pinged = False
    answers = False
    pings = 0

    def ping(self) -> None:
        self.pings += 1
        self.is_pinged = not self.answers


class Watched:
    """A watch over one runner, with a clock of its own."""

    def __init__(self) -> None:
        self.stage, self.runner, self.now = Stage(), Pinged(), NOW
        self.emitted: list[Event] = []
        self.watch = StartWatch(self.stage.pool, self.stage.book, Events(self.emitted.append))
        self.stage.pool._runners.append(cast(RunnerProcess, self.runner))
        self.watch.step(self.now)

    def hand_over(self, number: int) -> Held:
        held = self.stage.book.add(claimed(number), TaskInfo("x"), self.now)
        held.runner = cast(RunnerProcess, self.runner)
        self.runner.jobs[held.id] = False
        return held

    def start(self, held: Held) -> None:
        self.stage.runs.hear(cast(RunnerProcess, self.runner), {"t": "started", "id": held.id}, self.now)

    def finish(self, held: Held) -> None:
        del self.runner.jobs[held.id]
        self.runner.finished += 1

    def wait(self, seconds: float) -> None:
        """Let this much time pass in steps of one second, as the supervisor does."""
        for _ in range(int(seconds)):
            self.now += 1.0
            self.watch.step(self.now)

    def killed(self) -> str | None:
        return self.runner.killed

    def end(self) -> dict[str, type]:
        self.stage.ended(self.runner, Exit(None, 9), self.now)
        return {name: type(outcome) for name, outcome in self.stage.reported.items()}


@pytest.fixture
def watched() -> Watched:
    return Watched()


def test_unstarted_job_kills_its_runner_after_the_bound(watched: Watched) -> None:
    held = watched.hand_over(1)
    watched.wait(START_SECONDS)
    assert watched.killed() is None
    watched.wait(2 * CHECK_EVERY_SECONDS)
    assert watched.killed() == "did not start a job"
    [event] = watched.emitted
    assert isinstance(event, StartOverdue)
    assert (event.job_id, event.killed) == (held.job.job_id, True)


def test_head_of_an_idle_runner_crashes_and_the_jobs_behind_it_are_not_charged(watched: Watched) -> None:
    head, behind = watched.hand_over(1), watched.hand_over(2)
    watched.wait(START_SECONDS + 2 * CHECK_EVERY_SECONDS)
    assert watched.end() == {head.id: Crashed}
    assert watched.stage.runs.hand.remove(behind), "it goes to another runner, or is released"


def test_running_jobs_of_a_silent_runner_crash_and_unstarted_ones_are_not_charged(watched: Watched) -> None:
    running = watched.hand_over(1)
    watched.start(running)
    queued = watched.hand_over(2)
    watched.wait(START_SECONDS + SILENT_SECONDS)
    assert watched.killed() is None
    watched.wait(3 * CHECK_EVERY_SECONDS)
    assert watched.killed() == "did not start a job"
    assert watched.runner.pings == 1
    assert watched.end() == {running.id: Crashed}
    assert watched.stage.runs.hand.remove(queued)


def test_running_job_that_blocks_a_runner_whose_reader_answers_is_reported_and_left_alone(watched: Watched) -> None:
    watched.runner.answers = True
    watched.start(watched.hand_over(1))
    queued = watched.hand_over(2)
    watched.wait(10 * SILENT_SECONDS)
    assert watched.killed() is None
    assert watched.runner.pings > 10
    assert [(event.job_id, event.killed) for event in watched.emitted if isinstance(event, StartOverdue)] == [
        (queued.job.job_id, False)
    ]


def test_pong_resets_the_silence_of_a_runner(watched: Watched) -> None:
    watched.start(watched.hand_over(1))
    watched.hand_over(2)
    for _ in range(5):
        watched.wait(SILENT_SECONDS - START_SECONDS)
        watched.stage.runs.hear(cast(RunnerProcess, watched.runner), {"t": "pong"}, watched.now)
    assert watched.killed() is None


def test_jobs_that_start_and_end_keep_their_runner_alive(watched: Watched) -> None:
    """Each waits for long behind the one before it."""
    waiting = [watched.hand_over(number) for number in range(1, 21)]
    for held in waiting:
        watched.start(held)
        watched.wait(START_SECONDS - CHECK_EVERY_SECONDS)
        watched.finish(held)
    assert (watched.killed(), watched.runner.pings, watched.emitted) == (None, 0, [])


def test_running_job_without_queued_ones_is_no_concern_of_the_watch(watched: Watched) -> None:
    watched.start(watched.hand_over(1))
    watched.wait(10 * SILENT_SECONDS)
    assert (watched.killed(), watched.runner.pings) == (None, 0)


def test_pause_of_the_supervisor_does_not_count_as_waiting(watched: Watched) -> None:
    """A machine that was suspended: the runner was as well."""
    watched.hand_over(1)
    watched.wait(CHECK_EVERY_SECONDS)
    for _ in range(5):
        watched.now += 3600.0
        watched.watch.step(watched.now)
    assert watched.killed() is None


def test_job_that_was_cancelled_meanwhile_is_cancelled_and_not_charged(watched: Watched) -> None:
    held = watched.hand_over(1)
    held.ending = Cancelled("cancel requested")
    watched.wait(START_SECONDS + 2 * CHECK_EVERY_SECONDS)
    assert watched.end() == {held.id: Cancelled}
