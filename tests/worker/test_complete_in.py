"""A task that finishes its job in a transaction of its own: both happen, or neither."""

import pytest

from holdfast.domain.job import Job
from holdfast.domain.lifecycle import State
from tests.chaos.databases import MovableClock, conninfo, query
from tests.worker.lease_clock import LeaseClock
from tests.worker.notes import NOTE, notes
from tests.worker.site import Site

TASKS = (
    NOTE
    + """
import psycopg, sqlalchemy
from holdfast import LeaseLost
URL, CONNINFO = {url!r}, {conninfo!r}
INSERT = "INSERT INTO effects SELECT '{{}}', {{}}"

def insert():
    return INSERT.format(current().job.id, current().attempt)

@app.task
def with_psycopg(ctx: Context):
    with psycopg.connect(CONNINFO) as mine:
        mine.execute(insert())
        ctx.complete_in(mine, {{"by": "psycopg"}})

@app.task
def with_sqlalchemy(ctx: Context):
    with sqlalchemy.create_engine(URL).begin() as mine:
        mine.exec_driver_sql(insert())
        ctx.complete_in(mine, {{"by": "sqlalchemy"}})

@app.task(max_attempts=1)
def changes_its_mind(ctx: Context):
    with psycopg.connect(CONNINFO) as mine:
        mine.execute(insert())
        ctx.complete_in(mine)
        raise ZeroDivisionError("after complete_in")

@app.task(max_attempts=1)
def forgets_to_commit(ctx: Context):
    mine = psycopg.connect(CONNINFO)
    mine.execute(insert())
    ctx.complete_in(mine)
    mine.close()

@app.task
def outlived(ctx: Context):
    note("started")
    while ctx.attempt == 1 and not Path(__file__).with_name("go").exists():
        time.sleep(0.02)
    try:
        with psycopg.connect(CONNINFO) as mine:
            mine.execute(insert())
            ctx.complete_in(mine, ctx.attempt)
    except LeaseLost:
        note("lost")
        raise

@app.task
def holds_it_open(ctx: Context):
    with psycopg.connect(CONNINFO) as mine:
        mine.execute(insert())
        ctx.complete_in(mine, "at last")
        note("open")
        while not Path(__file__).with_name("go").exists():
            time.sleep(0.02)

@app.task
def neighbour():
    while not Path(__file__).with_name("go").exists():
        time.sleep(0.02)
"""
)


@pytest.fixture
def site(postgres_site: Site) -> Site:
    query(postgres_site.url, "CREATE TABLE effects (job uuid, attempt int)")
    postgres_site.tasks(TASKS.format(url=postgres_site.url, conninfo=conninfo(postgres_site.url)))
    return postgres_site


def effects(site: Site) -> list[tuple[str, int]]:
    return [(str(job), attempt) for job, attempt in query(site.url, "SELECT job, attempt FROM effects ORDER BY 1")]


def failure(job: Job) -> tuple[State, str]:
    assert job.last_error is not None
    return job.state, job.last_error["code"]


def test_commit_of_the_users_transaction_is_the_success_of_the_job(site: Site) -> None:
    by_psycopg, by_sqlalchemy = site.enqueue("with_psycopg"), site.enqueue("with_sqlalchemy")
    site.drain("--processes", "1")
    assert site.job(by_psycopg).result == {"by": "psycopg"}
    assert site.job(by_sqlalchemy).result == {"by": "sqlalchemy"}
    for job in (by_psycopg, by_sqlalchemy):
        assert site.event_names(job) == ["enqueued", "claimed", "succeeded"]
    assert effects(site) == sorted([(by_psycopg, 1), (by_sqlalchemy, 1)])


def test_rollback_of_the_users_transaction_is_a_failure_of_the_attempt(site: Site) -> None:
    changed = site.enqueue("changes_its_mind", max_attempts=1)
    forgotten = site.enqueue("forgets_to_commit", max_attempts=1)
    site.drain("--processes", "1")
    assert failure(site.job(changed)) == (State.FAILED, "ZeroDivisionError")
    assert failure(site.job(forgotten)) == (State.FAILED, "complete_in_rolled_back")
    assert effects(site) == []


def test_lease_lost_before_complete_in_raises_and_leaves_nothing_behind(site: Site) -> None:
    job = site.enqueue("outlived")
    site.worker("--processes", "2")
    site.wait(lambda: len(notes(site, "started")) == 1, "the task has started")
    site.take_leases(job)
    site.wait_for_state(job, State.SUCCEEDED)  # by the second attempt, while the first still runs
    (site.folder / "go").write_text("go")
    site.wait(lambda: len(notes(site, "lost")) == 1, "the first attempt is told")
    assert [attempt for _job, attempt in notes(site, "lost")] == ["1"]
    assert effects(site) == [(job, 2)]
    assert site.job(job).result == 2


def test_open_transaction_of_more_than_two_leases_disturbs_no_neighbour(site: Site) -> None:
    """Two leases pass on the clocks of the store and of the worker, a sixth of a lease at a time."""
    clock, store_clock = LeaseClock(site.folder / "clock"), MovableClock(site.url)
    holding = site.enqueue("holds_it_open")
    worker = site.worker("--processes", "3", "--heartbeat", "0.2s", program=clock.program)
    site.wait(lambda: len(notes(site, "open")) == 1, "the transaction is open")
    neighbours = [site.enqueue("neighbour") for _ in range(2)]
    for job in neighbours:
        site.wait_for_state(job, State.RUNNING)
    for _ in range(13):
        store_clock.advance(10.0)
        clock.advance(10.0)
        for job in neighbours:
            site.wait_for_heartbeats(job)
    store_clock.store.close()
    (site.folder / "go").write_text("go")
    site.wait_for_counts(succeeded=3)
    for job in (holding, *neighbours):
        assert site.event_names(job) == ["enqueued", "claimed", "succeeded"]
    assert site.job(holding).result == "at last"
    assert effects(site) == [(holding, 1)]
    assert worker.stop() == 0
