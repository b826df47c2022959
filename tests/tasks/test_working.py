"""`app.work()` and the test helper: tasks of both colours, run here, on a real store."""

import asyncio
import sys
from collections.abc import Callable
from contextlib import AbstractContextManager
from dataclasses import dataclass
from datetime import UTC, datetime
from pathlib import Path

import pytest

from holdfast import App, Cancel, Context, JobCancelled, JobFailed, NewJob, Permanent, Snooze, State, current
from holdfast.testing import Jobs, fresh_store

HoldfastJobs = Callable[[App], AbstractContextManager[Jobs]]


@dataclass
class Point:
    x: int


def test_jobs_run_here_until_there_are_none(app: App) -> None:
    @app.task
    def double(point: Point) -> Point:
        return Point(point.x * 2)

    @app.task
    async def later(ctx: Context, a: int) -> int:
        await asyncio.sleep(0)
        assert current() is ctx
        return a + ctx.attempt

    handles = (double.enqueue(Point(2)), later.enqueue(1))

    assert app.work() == 2
    assert handles[0].result(0) == Point(4)
    assert handles[1].result(0) == 2
    assert app.work() == 0


def test_a_job_may_enqueue_another(app: App) -> None:
    @app.task
    def count_down(number: int) -> None:
        if number:
            count_down.enqueue(number - 1)

    count_down.enqueue(3)
    assert app.work() == 4


def test_how_a_job_may_end(app: App) -> None:
    @app.task(retry=0, max_attempts=2, no_retry=KeyError)
    def end(how: str) -> object:
        match how:
            case "cancel":
                return Cancel("not needed")
            case "snooze":
                raise Snooze("1h")
            case "permanent":
                raise Permanent("never")
            case "no_retry":
                raise KeyError("k")
            case "unserialisable":
                return object()
            case _:
                raise ValueError("bad")

    handles = {
        how: end.enqueue(how) for how in ("cancel", "snooze", "permanent", "no_retry", "unserialisable", "error")
    }
    app.work()

    with pytest.raises(JobCancelled):
        handles["cancel"].result(0)
    assert handles["snooze"].job().state is State.PENDING
    codes = {"permanent": "Permanent", "no_retry": "KeyError", "unserialisable": "unserialisable_result"}
    for how, code in codes.items():
        with pytest.raises(JobFailed) as caught:
            handles[how].result(0)
        assert (caught.value.error["code"], caught.value.job.failures) == (code, 1)
    with pytest.raises(JobFailed, match="ValueError: bad") as caught:
        handles["error"].result(0)
    assert caught.value.job.failures == 2
    assert "raise ValueError" in caught.value.error["stack"]


def test_a_payload_from_elsewhere_that_does_not_fit_fails_for_good(app: App) -> None:
    @app.task
    def run(a: int) -> None: ...

    job = app.store.enqueue(NewJob(task="run", payload={"a": "1"}))
    app.work()
    error = app.store.job(job.id).last_error
    assert error is not None
    assert (error["code"], error["retryable"]) == ("invalid_arguments", False)
    assert error["message"].startswith("a: ")


def test_only_some_queues_and_only_so_many(app: App) -> None:
    @app.task
    def run() -> None: ...

    for queue in ("a", "a", "b", "b"):
        run.using(queue=queue).enqueue()

    assert app.work(queues=["b"], limit=1) == 1
    assert app.work(queues=["b"]) == 1
    assert app.work() == 2


def test_a_command_runs_here_too(app: App) -> None:
    run = app.command("run", [sys.executable, "-c", "import sys; sys.exit(65)"])
    handle = run.enqueue(a=1)
    app.work()
    with pytest.raises(JobFailed) as caught:
        handle.result(0)
    assert caught.value.error["retryable"] is False


def test_the_fixture_gives_an_app_a_store_of_its_own(app: App, holdfast_jobs: HoldfastJobs) -> None:
    @app.task(queue="mail")
    def send(to: str, at: datetime | None = None) -> str:
        return to if at is None else f"{to} at {at:%Y}"

    @app.task
    def other() -> None: ...

    send.enqueue("outside")
    with holdfast_jobs(app) as jobs:
        handle = send.enqueue("ann", at=datetime(2030, 1, 1, tzinfo=UTC))
        send.enqueue("bob")

        assert (
            jobs.assert_enqueued(send, {"at": datetime(2030, 1, 1, tzinfo=UTC)}, queue="mail", count=1).id == handle.id
        )
        jobs.assert_enqueued(send, count=2)
        jobs.assert_enqueued("send", {"to": "bob"})
        jobs.assert_not_enqueued(other)
        jobs.assert_not_enqueued(send, {"to": "eve"})
        assert [job.payload["to"] for job in jobs.enqueued(send)] == ["ann", "bob"]
        with pytest.raises(AssertionError, match="expected at least one job of other, found 0; other was not enqueued"):
            jobs.assert_enqueued(other)
        with pytest.raises(AssertionError, match=r"expected 1 jobs of send with {'to': 'eve'}.*{'to': 'bob'} on mail"):
            jobs.assert_enqueued(send, {"to": "eve"}, count=1)
        with pytest.raises(AssertionError, match=r"send was enqueued: {'to': 'bob'} on mail"):
            jobs.assert_not_enqueued(send, {"to": "bob"})
        assert jobs.work() == 2
        assert handle.result(0) == "ann at 2030"

    assert [job.payload for job in Jobs(app).enqueued()] == [{"to": "outside"}]


def test_without_pytest(app: App, tmp_path: Path) -> None:
    (tmp_path / "jobs.db").unlink()

    @app.task
    def run() -> None: ...

    with fresh_store(app) as jobs:
        run.enqueue()
        assert jobs.work() == 1
    with fresh_store(app, tmp_path) as jobs:
        assert jobs.enqueued() == []
    assert not (tmp_path / "jobs.db").exists(), "the app's own store was never opened"
