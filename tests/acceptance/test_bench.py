"""`holdfast bench`: what it measures, and that it leaves a store as it was."""

import re
import signal
import subprocess
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import psycopg
import pytest
from pydantic import TypeAdapter
from sqlalchemy import text

from holdfast import NewJob
from holdfast.bench.ground import PREFIX, STAMPED, TASK, Ground, queue_name
from holdfast.bench.report import Report
from holdfast.domain.lifecycle import State
from holdfast.domain.schedule import Declaration
from holdfast.stores.postgres_url import libpq_url
from holdfast.stores.sql_store import SqlStore
from holdfast.stores.upgrade import VERSION_TABLE, upgrade
from holdfast.wiring.sql import open_database
from tests.acceptance.command_line import CommandLine, InProcess
from tests.acceptance.test_jobs import fail_for_good
from tests.servers.waiting import DEADLINE_SECONDS, wait_until

TABLES = (
    *("jobs", "events", "tasks", "workers", "queues", "sources", "schedules", "schedule_ticks", "duties", "minutes"),
    *("refusals", "logs", "artifacts", "records", "claim_requests", "retention"),
)


def contents(store: SqlStore) -> dict[str, list[tuple[Any, ...]]]:
    """Every row of every table that a run could leave a trace in."""
    with store.database.engine.connect() as connection:
        return {
            table: sorted((tuple(row) for row in connection.execute(text(f"SELECT * FROM holdfast_{table}"))), key=repr)
            for table in TABLES
        }


@pytest.fixture
def inhabited(store: SqlStore) -> SqlStore:
    """A store with jobs of others: waiting, running under a lease that is over, failed, and a schedule that is due."""
    store.enqueue_many([NewJob(task="mail", payload={"i": i}) for i in range(3)])
    fail_for_good(store, NewJob(task="mail", queue="slow"))
    store.enqueue(NewJob(task="mail", queue="cut", lease_seconds=0.01))
    assert store.claim("a worker that is gone", 1, ["cut"], ["mail"])
    store.add_schedule(Declaration(name="often", task="mail", every_seconds=1))
    return store


def test_a_run_measures_everything_and_leaves_the_store_as_it_was(holdfast: CommandLine, inhabited: SqlStore) -> None:
    before = contents(inhabited)

    document = holdfast("bench", "--seconds", "1", "--json").succeeded().document

    report = TypeAdapter(Report).validate_python(document)
    assert set(document) == set(Report.__dataclass_fields__), "nothing else is printed"
    assert report.dialect == inhabited.database.dialect
    assert [loop.batch for loop in report.claim_settle] == [1, 10, 100]
    rates = [report.enqueue.single_per_second, report.enqueue.bulk_per_second, report.worker.per_second]
    assert min(rates + [loop.per_second for loop in report.claim_settle]) > 0
    for latency in (report.round_trip_ms, report.commit_ms, report.pickup_ms):
        assert 0 < latency.p50 <= latency.p99
        assert latency.count >= 5
    assert report.verdict.jobs_per_day == int(report.worker.per_second * 86_400)
    assert report.kept_queue is None
    assert contents(inhabited) == before
    assert holdfast("verify", "--json").succeeded().document["violations"] == []


def test_people_get_tables_and_sentences(here: InProcess) -> None:
    out = here("bench", "--seconds", "1").succeeded().out
    assert re.search(r"claim and settle, 100 a call +[\d,]+", out)
    assert re.search(r"pickup +[\d.]+ +[\d.]+ +from enqueue to the first line of the task", out)
    assert "takes" in out
    assert "jobs a day" in out


@contextmanager
def measuring(holdfast: CommandLine, *arguments: str) -> Iterator[subprocess.Popen[bytes]]:
    process = subprocess.Popen(
        holdfast.arguments("bench", *arguments),
        cwd=holdfast.folder,
        env=holdfast.environment(),
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
    )
    try:
        yield process
    finally:
        process.kill()
        process.communicate()


def has_enqueued(store: SqlStore) -> bool:
    return any(name.startswith(PREFIX) for name in store.offered_queues())


def has_a_worker(store: SqlStore) -> bool:
    claimed = (
        "SELECT count(*) FROM holdfast_events WHERE event = 'claimed' AND worker LIKE :ours AND worker NOT LIKE :raw"
    )
    with store.database.engine.connect() as connection:
        return bool(connection.scalar(text(claimed), {"ours": f"{PREFIX}%", "raw": "%-raw"}))


@pytest.mark.parametrize(("stage", "sent"), [(has_enqueued, signal.SIGTERM), (has_a_worker, signal.SIGINT)])
def test_a_run_that_is_interrupted_leaves_nothing_behind(
    holdfast: CommandLine, inhabited: SqlStore, stage: Callable[[SqlStore], bool], sent: signal.Signals
) -> None:
    before = contents(inhabited)
    while True:
        with measuring(holdfast, "--seconds", "2", "--json") as process:
            wait_until(lambda: stage(inhabited) or process.poll() is not None, what="it is under way")
            process.send_signal(sent)  # unless it has ended
            out, err = process.communicate(timeout=DEADLINE_SECONDS)
        if process.returncode != 0:  # else it had ended before this test, which was held up, could interrupt it
            break
    assert (process.returncode, out) == (130, b"")
    assert b"interrupted" in err
    assert b"Traceback" not in err
    assert contents(inhabited) == before


def test_jobs_that_are_kept_are_named_and_go_with_a_later_run_once_they_are_old(
    here: InProcess, store: SqlStore
) -> None:
    killed = Ground(store, f"{PREFIX}{int(time.time()) - 7200:x}-abcdef")
    killed_at_its_end = Ground(store, f"{PREFIX}{int(time.time()) - 3700:x}-abcdef")
    another = Ground(store, queue_name())
    for ground in (killed, another):
        store.enqueue_many(ground.new_jobs(3))
    store.cancel([job.id for job in store.enqueue_many(killed_at_its_end.new_jobs(3))])

    document = here("bench", "--seconds", "1", "--json", "--keep").succeeded().document

    kept = Ground(store, document["kept_queue"])
    assert kept.queue.startswith(PREFIX)
    assert {job.task for job in store.jobs(queue=kept.queue, limit=1000).items} <= {TASK, STAMPED}
    assert store.jobs(queue=kept.queue, states=[State.SUCCEEDED], limit=1).items
    for ground in (killed, killed_at_its_end):
        assert store.jobs(queue=ground.queue).items == (), "of a run that was killed long ago"
    assert len(store.jobs(queue=another.queue).items) == 3, "of a run that may still be under way"
    for ground in (kept, another):
        assert ground.clear()
    assert store.counts() == {}


def test_what_a_killed_worker_held_goes_once_its_lease_is_over(store: SqlStore) -> None:
    ground = Ground(store, queue_name())
    store.enqueue_many([NewJob(task=TASK, queue=ground.queue, lease_seconds=1.0) for _ in range(3)])
    assert len(store.claim("killed", 2, [ground.queue], [TASK])) == 2

    assert ground.clear()

    assert store.counts() == {}
    assert contents(store)["events"] == []


def test_a_schema_that_is_not_current_is_refused(here: InProcess, store: SqlStore) -> None:
    with store.database.engine.begin() as connection:
        connection.execute(text(f"UPDATE {VERSION_TABLE} SET version_num = '0001'"))
    here("bench").refused("schema 0001", "holdfast db upgrade")
    assert store.counts() == {}


def test_a_database_without_tables_is_refused(tmp_path: Path, postgres_database: str) -> None:
    InProcess(tmp_path, postgres_database)("bench").refused("no Holdfast tables", "holdfast db upgrade")


def test_a_control_plane_is_refused_with_what_to_do_instead(inside: InProcess) -> None:
    inside("--database", "http://127.0.0.1:8787", "bench").refused("control plane", "--database postgresql://")
    inside("bench", "--database", "https://jobs.example.org").refused("control plane", "where the database can be")


def test_wrong_usage_is_refused_and_no_file_is_made(inside: InProcess) -> None:
    inside("bench", "--seconds", "0").refused("--seconds", "1")
    assert "no database file" in inside("bench").said_no().err
    assert list(inside.folder.iterdir()) == []


def test_jobs_that_somebody_has_locked_are_not_said_to_be_gone(postgres_database: str) -> None:
    database = open_database(postgres_database)
    upgrade(database.engine)
    store = SqlStore(database)
    ground = Ground(store, queue_name())
    first, *_others = [job.id for job in store.enqueue_many(ground.new_jobs(3))]
    with psycopg.connect(libpq_url(postgres_database)) as somebody:
        store.cancel([first])
        somebody.execute("SELECT 1 FROM holdfast_jobs WHERE id = %s FOR UPDATE", (first,))
        assert not ground.clear()
        assert [job.id for job in store.jobs(queue=ground.queue).items] == [first]
        somebody.rollback()
    assert ground.clear()
    assert store.counts() == {}
    database.close()
