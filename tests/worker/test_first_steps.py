"""A worker runs what is enqueued and ends when it is told to."""

import signal

import pytest

from holdfast.domain.lifecycle import State
from holdfast.domain.views import WorkerRow
from tests.chaos.databases import query
from tests.worker.site import Site


def test_functions_coroutines_and_commands_run_to_their_end(site: Site) -> None:
    site.tasks("""
        @app.task
        def add(a: int, b: int) -> int:
            return a + b

        @app.task
        async def nap() -> str:
            await asyncio.sleep(0.01)
            return "slept"

        app.command("greet", ["sh", "-c", 'echo \\'{"holdfast": "result", "result": {"hello": "you"}}\\''])
    """)
    added, slept, greeted = site.enqueue("add", {"a": 1, "b": 2}), site.enqueue("nap"), site.enqueue("greet")
    site.drain()
    assert [site.job(job).result for job in (added, slept, greeted)] == [3, "slept", {"hello": "you"}]


@pytest.mark.parametrize("number", [signal.SIGTERM, signal.SIGINT])
def test_an_idle_worker_ends_with_0_when_told_to_stop(site: Site, number: signal.Signals) -> None:
    site.tasks("@app.task\ndef nothing(): pass")
    worker = site.worker()
    worker.wait_for_log('"after": "idle"')
    worker.send(number)
    assert worker.wait() == 0
    [row] = site.store.workers()
    assert (row.state, row.stopped_at is not None) == ("stopped", True)


def test_a_job_of_a_task_that_no_worker_knows_is_left_alone(site: Site) -> None:
    site.tasks("@app.task\ndef known(): pass")
    unknown, known = site.enqueue("unknown"), site.enqueue("known")
    site.drain()
    assert site.job(known).state is State.SUCCEEDED
    assert site.event_names(unknown) == ["enqueued"]


def test_workers_that_were_last_seen_days_ago_are_forgotten(site: Site) -> None:
    site.tasks("@app.task\ndef nothing(): pass")
    site.store.keep_worker(WorkerRow(id="long-gone", host="somewhere", pid=1, state="idle"))
    query(site.url, "UPDATE holdfast_workers SET beat_at = '2020-01-01T00:00:00.000000Z'")
    site.drain()
    assert [row.state for row in site.store.workers()] == ["stopped"]
