"""A deploy charges nothing, loses nothing and runs nothing twice, and nobody waits for a lease to expire.

No lease is taken away here: a job that had to be reaped would be charged with a crash and have other events.
"""

import signal

import pytest
from sqlalchemy import create_engine

from holdfast.domain.job import NewJob
from holdfast.domain.lifecycle import State
from tests.chaos.databases import query
from tests.worker.load import Load
from tests.worker.notes import NOTE, noted
from tests.worker.site import Site, WorkerProcess, patched

FLAGS = ("--processes", "1", "--grace", "600s")
BRIEF_TASKS = (
    NOTE
    + """
@app.task
def quick():
    note("started")
    note("ran")

@app.task
def brief():
    note("started")
    time.sleep(0.05)
    note("ran")
"""
)


# A claim may wait for a lock for longer than the 10 s that a statement has.
PATIENT = "from holdfast.domain import timing; timing.LONGEST_TIMEOUT_SECONDS = 600.0"


def start(site: Site) -> WorkerProcess:
    return site.worker(*FLAGS, log_level="info")


def wait_for_progress(site: Site, jobs: int) -> None:
    done = len(noted(site, "ran"))
    site.wait(lambda: len(noted(site, "ran")) >= done + jobs, f"{jobs} more jobs have run")


def restart_under_load(site: Site, restarts: int) -> None:
    site.tasks(BRIEF_TASKS)
    shift = [start(site), start(site)]
    for worker in shift:
        worker.wait_for_log(", all queues, ")
    with Load(site.store, "quick", "brief") as load:
        for _ in range(restarts):
            wait_for_progress(site, 5)
            leaving, staying = shift
            leaving.send(signal.SIGTERM)
            successor = start(site)
            assert leaving.wait() == 0
            successor.wait_for_log(", all queues, ")
            shift = [staying, successor]
    site.wait_for_counts(succeeded=len(load.ids))
    assert noted(site, "started") == noted(site, "ran") == sorted(load.ids)
    assert site.charged() == (0, 0)
    assert site.count_events("lease_lost") == 0
    assert site.store.refusals() == []
    assert [worker.stop() for worker in shift] == [0, 0]


def test_rolling_restart_under_load_loses_repeats_and_charges_nothing(site: Site) -> None:
    restart_under_load(site, 4)  # on each of two databases: eight in all


@pytest.mark.long
@pytest.mark.timeout(300)
def test_thirty_rolling_restarts_under_load_lose_repeat_and_charge_nothing(site: Site) -> None:
    restart_under_load(site, 30)


LONG_TASKS = (
    NOTE
    + """
def long_at_first(seconds):
    note("started")
    return seconds if current().attempt == 1 else 0

@app.task
def long():
    time.sleep(long_at_first(600))

@app.task
async def long_coroutine():
    await asyncio.sleep(long_at_first(600))

@app.task
def stubborn():
    signal.signal(signal.SIGTERM, signal.SIG_IGN)
    note("started")
    if current().attempt == 1:
        while True:
            signal.pause()

notes = Path(__file__).with_name("notes.txt")
script = 'echo started $HOLDFAST_JOB_ID $HOLDFAST_ATTEMPT >> "$0"; [ $HOLDFAST_ATTEMPT -gt 1 ] || sleep 600'
app.command("long_command", ["sh", "-c", script, str(notes)])
"""
)


def test_jobs_longer_than_the_grace_are_released_and_run_again_without_charge(site: Site) -> None:
    site.tasks(LONG_TASKS)
    jobs = [site.enqueue(task) for task in ("long", "long_coroutine", "long_command")]
    worker = site.worker("--processes", "2", "--grace", "0.5s")
    site.wait(lambda: noted(site, "started") == sorted(jobs), "all jobs have started")
    assert worker.stop() == 0
    for job in jobs:
        assert site.job(job).state is State.PENDING
        assert site.event_names(job)[-1] == "released"
    site.drain("--processes", "2")
    for job in jobs:
        assert site.job(job).state is State.SUCCEEDED
        assert site.event_names(job) == ["enqueued", "claimed", "released", "claimed", "succeeded"]
    assert site.charged() == (0, 0)


def test_second_stop_signal_skips_the_grace_and_charges_nothing(sqlite_site: Site) -> None:
    site = sqlite_site
    site.tasks(LONG_TASKS)
    jobs = [site.enqueue(task) for task in ("long", "stubborn")]
    worker = site.worker("--processes", "2", "--grace", "6000s")
    site.wait(lambda: noted(site, "started") == sorted(jobs), "both jobs have started")
    worker.send(signal.SIGTERM)
    worker.wait_for_log("worker is draining")
    assert [site.job(job).state for job in jobs] == [State.RUNNING, State.RUNNING]
    worker.send(signal.SIGTERM)
    assert worker.wait() == 0  # a small part of the grace
    for job in jobs:
        assert site.event_names(job) == ["enqueued", "claimed", "released"]
    assert site.charged() == (0, 0)


def test_claim_in_flight_at_the_stop_signal_is_given_back(postgres_site: Site) -> None:
    site = postgres_site
    site.tasks(BRIEF_TASKS)
    worker = site.worker("--grace", "600s", POLL_INTERVAL="0.2", LEASE_SECONDS="3600", program=patched(PATIENT))
    worker.wait_for_log('"after": "idle"')
    locked = "FROM pg_stat_activity WHERE wait_event_type = 'Lock' AND datname = current_database()"
    waiting = f"SELECT count(*) {locked} AND query LIKE '%holdfast_claim(%'"
    engine = create_engine(site.url)
    with engine.begin() as ours:
        ours.exec_driver_sql("LOCK TABLE holdfast_jobs IN ACCESS EXCLUSIVE MODE")
        job = site.store.enqueue(NewJob(task="quick"), connection=ours).id
        site.wait(lambda: query(site.url, waiting) != [(0,)], "a claim waits for the lock")
        worker.send(signal.SIGTERM)
        worker.wait_for_log("worker is draining")
        assert worker.running
    assert worker.wait() == 0
    engine.dispose()
    assert site.event_names(job) == ["enqueued", "claimed", "released"]
    assert noted(site, "ran") == []
    assert site.charged() == (0, 0)
