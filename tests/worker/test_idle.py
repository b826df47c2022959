"""A worker with nothing to do asks little."""

import time

from tests.worker.counting_proxy import CountingProxy
from tests.worker.lease_clock import LeaseClock
from tests.worker.site import Site

POLLS_UNTIL_RARE = 8  # by then the wait between two questions has grown to nearly the poll interval of 2 s
IDLE = '"after": "idle"'
POLL_SECONDS = 2.0
STEPS = 12
STEP_SECONDS = 1.0
# The listener for wake-ups sends one a minute, by the machine's clock.
PROBE = b"NOTIFY holdfast, 'probe:"


def test_idle_worker_polls_every_two_seconds_and_asks_little_else(postgres_site: Site) -> None:
    """Counted on the worker's own clock, which stands still but for the steps that are made here.

    A worker that is slow sees several steps as one, and asks less.
    """
    site = postgres_site
    site.tasks("@app.task\ndef nothing(): pass\n\n@app.task\nasync def nothing_async(): pass")
    clock = LeaseClock(site.folder / "clock")
    with CountingProxy(site.url) as proxy:
        worker = site.worker("--processes", "2", url=proxy.url, program=clock.program)
        site.wait(lambda: worker.text().count(IDLE) >= POLLS_UNTIL_RARE, "the worker polls at its slowest")
        clock.freeze()
        polls = worker.text().count(IDLE)
        clock.advance(2 * STEP_SECONDS)
        # What was under way when the clock stopped has been sent before this poll.
        site.wait(lambda: worker.text().count(IDLE) > polls, "the worker polls")
        polls, statements = worker.text().count(IDLE), len(proxy.statements)
        for _ in range(STEPS):
            clock.advance(STEP_SECONDS)
            time.sleep(STEP_SECONDS)  # a supervisor looks at its clock once a second
        site.wait(lambda: len(proxy.statements) > statements, "the worker asks something")
        asked = sum(PROBE not in statement for statement in proxy.statements[statements:])
        polls = worker.text().count(IDLE) - polls
    print(f"idle for {STEPS * STEP_SECONDS:.0f} s: {asked} statements, {polls} of them polls")
    assert polls <= STEPS * STEP_SECONDS / POLL_SECONDS + 1
    assert asked - polls <= STEPS * STEP_SECONDS, "the reaper, schedules, the roll-up and the worker's row"
