"""Tasks that fork inside `app.work()`: only the process that claimed the job reports it."""

from __future__ import annotations

import os
import sys
from collections.abc import Callable
from contextlib import closing

import pytest

from holdfast import App
from holdfast.domain.lifecycle import State
from tests.chaos.databases import assert_verified


def come_back() -> str:
    return "the child"


def leave() -> str:
    sys.exit(0)


def fail() -> str:
    raise ValueError("the child")


@pytest.mark.parametrize("end", [come_back, leave, fail])
def test_forked_child_that_leaves_its_task_reports_nothing(end: Callable[[], str], store_url: str) -> None:
    test = os.getpid()
    with closing(App(store_url)) as app:

        @app.task
        def fork() -> str:
            child = os.fork()
            if child == 0:
                return end()
            os.waitpid(child, 0)
            return "the parent"

        job = fork.enqueue()
        try:
            assert app.work(limit=3) == 1
            assert app.store.job(job.id).result == "the parent"
        finally:
            if os.getpid() != test:  # a child that came out of `work`
                os._exit(1)
        assert [event.event for event in app.store.events(job.id)] == ["enqueued", "claimed", "succeeded"]
        assert app.store.job(job.id).state is State.SUCCEEDED
    assert_verified(store_url)
