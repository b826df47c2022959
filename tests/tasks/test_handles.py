"""Handles: waiting for a result, on a real store whose jobs are settled by hand."""

import asyncio
import threading
import time
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

import pytest

from holdfast import (
    App,
    Cancelled,
    Failed,
    Handle,
    InvalidInput,
    JobCancelled,
    JobError,
    JobFailed,
    NotFound,
    Report,
    State,
    Succeeded,
)
from holdfast.domain.outcome import Outcome

Wait = Callable[[Handle[Any], Any], Any]


@dataclass
class Point:
    x: int


@pytest.fixture
def handle(app: App) -> Handle[Point]:
    @app.task(max_attempts=2, retry=0)
    def locate() -> Point:
        return Point(1)

    return locate.enqueue()


def settle(app: App, outcome: Outcome) -> None:
    claimed = app.store.claim("w", 1)[0]
    assert app.store.settle([Report(claimed.job_id, claimed.attempt, claimed.lease_token, outcome)])[0].ok


def wait(handle: Handle[Any], timeout: Any) -> Any:
    return handle.result(timeout)


def await_(handle: Handle[Any], timeout: Any) -> Any:
    return asyncio.run(handle.aresult(timeout))


both_colours = pytest.mark.parametrize("result", [wait, await_])


@both_colours
def test_a_result_comes_as_its_annotation_has_it(app: App, handle: Handle[Point], result: Wait) -> None:
    settle(app, Succeeded({"x": 5}))
    assert result(handle, None) == Point(5)
    assert app.handle(handle.id).result() == Point(5)


@both_colours
def test_a_result_is_waited_for(app: App, handle: Handle[Point], result: Wait) -> None:
    app.store.job(handle.id)
    timer = threading.Timer(0.1, settle, [app, Succeeded({"x": 5})])
    timer.start()
    assert result(handle, "10m") == Point(5)
    timer.join()


@both_colours
def test_a_failure_that_will_be_tried_again_is_not_the_end(app: App, handle: Handle[Point], result: Wait) -> None:
    error = JobError("ValueError", "bad")
    settle(app, Failed(error))
    assert handle.job().state is State.RETRYABLE
    with pytest.raises(TimeoutError, match=r"is still retryable after 0\.05"):
        result(handle, 0.05)

    settle(app, Failed(error))
    with pytest.raises(JobFailed, match=rf"job {handle.id} \(locate\) failed: ValueError: bad") as caught:
        result(handle, None)
    assert caught.value.error["code"] == "ValueError"
    assert caught.value.job.state is State.FAILED


@both_colours
def test_a_cancelled_job_has_no_result(app: App, handle: Handle[Point], result: Wait) -> None:
    settle(app, Cancelled("not needed"))
    with pytest.raises(JobCancelled, match="was cancelled") as caught:
        result(handle, None)
    assert caught.value.job.id == handle.id


@both_colours
def test_a_timeout_is_kept(handle: Handle[Point], result: Wait) -> None:
    started = time.monotonic()
    with pytest.raises(TimeoutError, match="is still pending"):
        result(handle, 0.3)
    assert time.monotonic() - started >= 0.3  # by the clock that the code waits on
    with pytest.raises(TimeoutError):
        result(handle, 0)
    with pytest.raises(InvalidInput, match="timeout: "):
        result(handle, "soon")


def test_a_job_is_cancelled_by_its_handle(handle: Handle[Point]) -> None:
    assert handle.cancel() is True
    assert handle.cancel() is True, "it is, whoever asked first"
    with pytest.raises(JobCancelled):
        handle.result()


def test_a_running_job_is_asked_to_stop(app: App, handle: Handle[Point]) -> None:
    app.store.claim("w", 1)
    assert handle.cancel() is True
    assert handle.job().cancel_requested_at is not None


def test_a_job_that_has_succeeded_is_not_cancelled(app: App, handle: Handle[Point]) -> None:
    settle(app, Succeeded({"x": 1}))
    assert handle.cancel() is False


def test_a_job_that_is_not_there(app: App) -> None:
    with pytest.raises(NotFound):
        app.handle("01890a5d-ac96-774b-bcce-b302099a8057")
    with pytest.raises(InvalidInput, match="job_id: must be a UUID"):
        app.handle("7")
