"""One event of every kind."""

from holdfast.domain.events import (
    Beats,
    Claims,
    ClockSetBack,
    DutyRefused,
    Event,
    JobReaped,
    LeaseGone,
    Problem,
    Reaping,
    RunEnded,
    RunMoved,
    RunnerEnded,
    RunnerStarted,
    RunSucceeded,
    ScheduleFailed,
    StartOverdue,
    StoreBack,
    StoreFailed,
    Ticked,
    UpkeepDone,
    UpkeepFailed,
    UpkeepStep,
    WakeUps,
    WorkerMoved,
)
from holdfast.domain.worker_states import RunState, WorkerState

JOB = "01890a5d-ac96-774b-bcce-b302099a8057"


def worker_moved(after: WorkerState) -> WorkerMoved:
    return WorkerMoved(WorkerState.POLLING, after)


def run_moved(before: RunState | None, after: RunState | None) -> RunMoved:
    return RunMoved(JOB, 2, "mail", "default", before, after)


def run_ended(event: str | None = "succeeded", status: str = "applied", error: str | None = None) -> RunEnded:
    kind = RunSucceeded if (event, status) == ("succeeded", "applied") else RunEnded
    return kind(JOB, 2, "mail", "default", event or "failed", status, event, 12, error)


def lease_gone(refused: bool = True) -> LeaseGone:
    return LeaseGone(JOB, 2, "mail", refused, killed=True)


def runner_ended(why: str | None = None, signal: int | None = None, exit_code: int | None = None) -> RunnerEnded:
    return RunnerEnded(4711, "sync", exit_code, signal, why, jobs=3)


EVERY_KIND: list[Event] = [
    worker_moved(WorkerState.IDLE),
    run_moved(None, RunState.CLAIMING),
    Claims(3, 0.002),
    run_ended(),
    run_ended("failed"),
    Beats(3, 0.002, 41.0),
    lease_gone(),
    RunnerStarted(4711, "sync", 1),
    runner_ended(),
    StartOverdue(4711, JOB, 2, "mail", 60.0, killed=True),
    StoreFailed("claim", "connection refused"),
    StoreBack("claim", 12.5),
    Reaping(2),
    ClockSetBack(3600.0, 2, 14, 1),
    JobReaped(JOB, 2, "lease_lost"),
    Ticked("nightly", "fired", JOB, 0.2),
    ScheduleFailed("nightly", "InvalidInput: cron"),
    UpkeepStep("retention", 500, 0.02),
    UpkeepDone("retention", 1200, 3.5, finished=True),
    UpkeepFailed("retention", "no such table", "Traceback …", 300.0),
    WakeUps("listening"),
    DutyRefused("announce sources", "limited to queues"),
    Problem("loop", "KeyError: 'x'", "Traceback …"),
]
