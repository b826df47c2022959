"""What a job says in `app.work()`, and what its handle tells of it."""

import io
import logging
import sys
import threading
from contextlib import redirect_stdout
from datetime import UTC, datetime, timedelta
from typing import Any, cast

import pytest

from holdfast import App, Context
from holdfast.domain.logs import LogLine, Stream
from holdfast.tasks import following
from tests.servers.waiting import DEADLINE_SECONDS, wait_until


def test_what_is_printed_and_logged_here_is_kept_and_still_shown(app: App) -> None:
    @app.task
    def talk(ctx: Context) -> None:
        print("printed")
        logging.getLogger("shop").warning("careful")
        sys.stderr.write("no end")
        ctx.log("said")
        ctx.progress(3, 3)

    handle = talk.enqueue()
    shown, before = io.StringIO(), logging.Logger.callHandlers
    with redirect_stdout(shown):
        app.work()
        print("outside")
        assert sys.stdout is shown
    assert [(line.stream, line.message) for line in handle.logs()] == [
        ("stdout", "printed"),
        ("log", "careful"),
        ("log", "said"),
        ("stderr", "no end"),
    ]
    assert shown.getvalue() == "printed\noutside\n"
    assert logging.Logger.callHandlers is before
    assert handle.progress() == {"done": 3, "total": 3}
    assert handle.logs(attempt=2) == []


def test_a_job_that_fails_leaves_the_streams_as_they_were(app: App) -> None:
    @app.task(max_attempts=1)
    def fail() -> None:
        print("before", end="")
        raise ValueError

    stdout, stderr = sys.stdout, sys.stderr
    handle = fail.enqueue()
    app.work()
    assert (sys.stdout, sys.stderr) == (stdout, stderr)
    assert [line.message for line in handle.logs()] == ["before"]


def test_a_level_set_for_the_job_is_taken_back(app: App, monkeypatch: pytest.MonkeyPatch) -> None:
    root = logging.getLogger()
    monkeypatch.setattr(root, "handlers", [])  # pytest's own are a configuration
    monkeypatch.setattr(root, "level", logging.WARNING)
    cast(Any, root.manager)._clear_cache()

    @app.task
    def talk() -> None:
        logging.getLogger("shop").info("heard")

    handle = talk.enqueue()
    app.work()
    assert [line.message for line in handle.logs()] == ["heard"]
    assert root.level == logging.WARNING


def test_lines_and_progress_are_stored_while_the_job_runs(app: App, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(following, "LAST_WORDS_SECONDS", 3600.0)
    monkeypatch.setattr(following, "_LONG_AGO", timedelta(hours=1))
    over = threading.Event()

    @app.task
    def talk(ctx: Context) -> None:
        print("early")
        ctx.progress(1, 2)
        over.wait(DEADLINE_SECONDS)
        print("late")

    handle = talk.enqueue()
    working = threading.Thread(target=app.work)
    working.start()
    try:
        wait_until(lambda: bool(handle.logs()), what="the first line is stored")
        wait_until(lambda: handle.progress() == {"done": 1, "total": 2}, what="progress is stored")
        followed = handle.follow()
        assert next(followed).message == "early"
        over.set()
        assert next(followed).message == "late"
        working.join()
        app.store.append_logs([LogLine(handle.id, 1, 3, datetime.now(UTC), Stream.STDOUT, "last")])
        assert next(followed).message == "last", "a job that has ended is followed on for its last lines"
        monkeypatch.setattr(following, "LAST_WORDS_SECONDS", 0.0)
        assert list(followed) == []
    finally:
        over.set()
        working.join()


def test_two_inline_workers_at_once_are_told_apart(app: App) -> None:
    together = threading.Barrier(2, timeout=DEADLINE_SECONDS)

    @app.task
    def talk(name: str) -> None:
        together.wait()
        for number in range(50):
            print(name, number)
        together.wait()

    stdout = sys.stdout
    handles = {name: talk.enqueue(name) for name in ("ann", "bob")}
    threads = [threading.Thread(target=app.work, kwargs={"limit": 1}) for _ in handles]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    for name, handle in handles.items():
        assert [line.message for line in handle.logs()] == [f"{name} {number}" for number in range(50)]
    assert sys.stdout is stdout
