"""A store that does not answer: nothing runs on under a lease that may be over, and an outage charges nothing."""

import sqlite3
from collections.abc import Callable, Iterator
from contextlib import contextmanager

from sqlalchemy import make_url

from holdfast.domain.answers import Verb
from holdfast.domain.lifecycle import State
from holdfast.domain.timing import kill_margin
from tests.chaos.proxy import ForgetfulProxy
from tests.servers.waiting import DEADLINE_SECONDS, gone
from tests.worker.lease_clock import LeaseClock
from tests.worker.site import Site

LEASE = 600.0
TASKS = """
    def wait_until_told():
        while not Path("go").exists():
            time.sleep(0.02)

    @app.task
    def careful(ctx: Context) -> int:
        with open("careful", "a") as file:
            file.write(f"{os.getpid()}\\n")
        if ctx.attempt == 1:
            wait_until_told()
        return ctx.attempt

    @app.task(on_lost_lease="continue")
    def bold(ctx: Context) -> int:
        Path(f"bold-{ctx.attempt}").write_text(str(os.getpid()))
        if ctx.attempt == 1:
            wait_until_told()
        return ctx.attempt
"""


class Outage:
    """Makes the store unreachable for the worker that uses `url`, and reachable again."""

    def __init__(self, url: str, begin: Callable[[], None], end: Callable[[], None]) -> None:
        self.url = url
        self.begin = begin
        self.end = end


@contextmanager
def outage_of(site: Site) -> Iterator[Outage]:
    """On Postgres a network that swallows everything; on SQLite somebody who keeps the file locked."""
    if not site.is_sqlite:
        with ForgetfulProxy(site.url) as proxy:
            yield Outage(proxy.url, proxy.become_a_black_hole, proxy.forward_again)
        return
    lock = sqlite3.connect(str(make_url(site.url).database), isolation_level=None, timeout=DEADLINE_SECONDS)
    try:
        yield Outage(site.url, lambda: _execute(lock, "BEGIN IMMEDIATE"), lambda: _execute(lock, "ROLLBACK"))
    finally:
        lock.close()


def _execute(connection: sqlite3.Connection, statement: str) -> None:
    connection.execute(statement)


def test_without_an_answer_the_runner_is_killed_before_the_lease_is_over_and_the_job_released(site: Site) -> None:
    """A task that may run twice at the same time goes on, and if nobody took the job, it succeeds as if nothing was."""
    site.tasks(TASKS)
    clock = LeaseClock(site.folder / "clock")
    careful, bold = site.enqueue("careful", lease_seconds=LEASE), site.enqueue("bold", lease_seconds=LEASE)
    with outage_of(site) as outage:
        site.worker("--processes", "2", "--heartbeat", "0.2s", url=outage.url, program=clock.program)
        [runner], [bold_runner] = site.wait_for_pids("careful"), site.wait_for_pids("bold-1")
        site.wait_for_heartbeats(careful)
        clock.freeze()
        outage.begin()
        # No heartbeat was sent after this moment, so that the lease is over a whole lease later.
        clock.advance(LEASE - kill_margin(LEASE) / 2)
        site.wait_gone([runner], "the runner is killed before its lease is over")
        clock.advance(kill_margin(LEASE))
        assert site.job(careful).state is State.RUNNING, "nobody could be told yet"
        clock.run_on()
        outage.end()
        released = site.wait_for_event(careful, "released")
        assert "lease" in str(released.detail)
        assert not gone(bold_runner)
        site.tell("go")
        job = site.wait_for_state(bold, State.SUCCEEDED)
        assert (job.result, site.event_names(bold)) == (1, ["enqueued", "claimed", "succeeded"])
    job = site.job(careful)
    assert (job.crashes, job.failures) == (0, 0)
    assert site.event_names(careful)[:3] == ["enqueued", "claimed", "released"]
    # A heartbeat may have crossed a report on its way; no report was refused.
    assert [refused for refused in site.store.refusals() if refused.verb != Verb.HEARTBEAT] == []


def test_a_worker_that_only_itself_is_cut_off_from_the_store_is_refused_when_it_comes_back(postgres_site: Site) -> None:
    site = postgres_site
    site.tasks(TASKS)
    clock = LeaseClock(site.folder / "clock")
    careful, bold = site.enqueue("careful", lease_seconds=LEASE), site.enqueue("bold", lease_seconds=LEASE)
    with ForgetfulProxy(site.url) as proxy:
        site.worker("--processes", "2", url=proxy.url, program=clock.program)
        [runner], [bold_runner] = site.wait_for_pids("careful"), site.wait_for_pids("bold-1")
        proxy.become_a_black_hole()
        clock.advance(LEASE)
        site.wait_gone([runner], "the runner is killed")
        site.take_leases(careful, bold)
        site.worker("--processes", "2")
        for job_id in (careful, bold):
            assert site.wait_for_state(job_id, State.SUCCEEDED).result == 2
        assert not gone(bold_runner)
        proxy.forward_again()
        site.tell("go")
        for job_id in (careful, bold):
            assert {refused.attempt for refused in site.wait_for_refusals(job_id)} == {1}
            assert site.event_names(job_id) == ["enqueued", "claimed", "lease_lost", "claimed", "succeeded"]
