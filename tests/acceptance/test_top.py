"""`holdfast top`: the fleet in a terminal, live; and one frame, or one document, for everybody else."""

import signal
from collections.abc import Iterator
from contextlib import contextmanager

import pytest
from sqlalchemy import create_engine, text

from holdfast import NewJob
from holdfast.domain.answers import Beat
from holdfast.domain.job import Claimed
from holdfast.domain.outcome import Failed, JobError, Report, Succeeded
from holdfast.domain.views import WorkerRow
from holdfast.stores.sql_store import SqlStore
from holdfast.throwaway.postgres import PostgresEndpoint
from tests.acceptance.command_line import CommandLine, InProcess
from tests.acceptance.terminal import Terminal, terminal
from tests.servers.waiting import wait_until

# The live view is the same on every store.
on_a_file = pytest.mark.parametrize("database_with_tables", ["sqlite"], indirect=True)


@contextmanager
def watching(holdfast: CommandLine, size: tuple[int, int] = (120, 40), **variables: str) -> Iterator[Terminal]:
    arguments = holdfast.arguments("top", "--interval", "0.1")
    with terminal(arguments, holdfast.folder, holdfast.environment(**variables), size) as opened:
        yield opened


def claim(store: SqlStore, task: str = "resize") -> Claimed:
    store.enqueue(NewJob(task=task))
    [claimed] = store.claim("ada-7-c0ffee")
    return claimed


def progress(store: SqlStore, claimed: Claimed, done: int, note: str) -> None:
    told = {"done": done, "total": 4, "note": note}
    store.heartbeat([Beat(claimed.job_id, claimed.attempt, claimed.lease_token, "ada-7-c0ffee", told)])


def settle(store: SqlStore, claimed: Claimed, ending: Succeeded | Failed) -> None:
    store.settle([Report(claimed.job_id, claimed.attempt, claimed.lease_token, ending, "ada-7-c0ffee")])


@on_a_file
def test_it_shows_what_runs_as_it_goes_on_until_a_key_ends_it(holdfast: CommandLine, store: SqlStore) -> None:
    claimed = claim(store)
    with watching(holdfast) as screen:
        screen.wait_to_show("running (1)", "resize", "ada-7-c0ffee", claimed.job_id, "no worker is alive")
        progress(store, claimed, 3, "third page")
        screen.wait_to_show("75 % 3 of 4 third page")
        settle(store, claimed, Succeeded())
        screen.wait_to_show("nothing runs", "succeeded 1")
        screen.press("q")
        assert screen.ended() == 0
        assert screen.restored


@on_a_file
def test_ctrl_c_and_sigterm_leave_the_terminal_as_it_was(holdfast: CommandLine, store: SqlStore) -> None:
    store.enqueue(NewJob(task="resize"))
    with watching(holdfast) as interrupted, watching(holdfast) as terminated:
        interrupted.wait_to_show("pending 1")
        interrupted.press("\x03")
        terminated.wait_to_show("pending 1")
        terminated.process.send_signal(signal.SIGTERM)
        assert (interrupted.ended(), terminated.ended()) == (0, 143)
        assert interrupted.restored
        assert terminated.restored


@on_a_file
def test_a_paused_display_stands_still_and_then_goes_on(holdfast: CommandLine, store: SqlStore) -> None:
    store.enqueue(NewJob(task="resize"))
    with watching(holdfast) as screen:
        screen.wait_to_show("pending 1", "p pauses")
        screen.press("p")
        screen.wait_to_show("paused", "p goes on")
        store.enqueue(NewJob(task="resize"))
        screen.press("\t")  # it still listens, and draws what it had
        screen.wait_to_show("pending 1")
        screen.press("p")
        screen.wait_to_show("pending 2", "p pauses")


@on_a_file
def test_on_a_small_terminal_sections_shrink_and_nothing_wraps(holdfast: CommandLine, store: SqlStore) -> None:
    for number in range(30):
        store.enqueue(
            NewJob(task=f"a-task-with-a-rather-long-name-{number}", queue=f"queue-of-a-rather-long-name-{number}")
        )
        store.keep_worker(
            WorkerRow(id=f"machine-with-a-long-name-{number}", host="h", pid=1, state="idle", app="m:app")
        )
        store.set_source(f"source-{number}", max_concurrent=3)
    store.claim("machine-with-a-long-name-7", 20)
    with watching(holdfast, (80, 24)) as screen:
        screen.wait_to_show("attention", "running (", "queues (", "workers (", "sources (", "q quits")
        assert len(screen.screen) <= 24
        assert max(map(len, screen.screen)) <= 80
        screen.press("\t\t")
        screen.press("\x1b[C")
        screen.wait_to_show("queues (12 of 30)", "workers (1 of 30)", "q quits")
    with watching(holdfast, (40, 8)) as tiny:
        tiny.wait_to_show("holdfast top", "q quits")
        assert len(tiny.screen) <= 8
        assert max(map(len, tiny.screen)) <= 40


def test_what_jobs_say_to_the_terminal_is_shown_and_not_obeyed(here: InProcess, store: SqlStore) -> None:
    progress(store, claim(store), 1, "wiped \x1b[2J\u202e\nand on")

    out = here("top", "--once").succeeded().out
    assert r"wiped \x1b[2J\u202e and on" in out
    assert "\x1b" not in out
    assert "\u202e" not in out


def test_one_frame_tells_of_everything(here: InProcess, store: SqlStore) -> None:
    settle(store, claim(store), Succeeded())
    settle(store, claim(store), Failed(JobError("ValueError", "no", retryable=False)))
    claim(store, "render")
    store.enqueue(NewJob(task="mail", queue="letters"))
    store.pause_queue("letters")
    store.limit_queue("default", 4)
    store.keep_worker(
        WorkerRow(id="ada-7-c0ffee", host="ada", pid=7, state="polling", app="tasks:app", slots=8, running=1)
    )
    store.set_source("prices", rate_limit_per_minute=60, max_concurrent=2)

    out = here("top", "--once").succeeded().out
    assert "enqueued 0.1/s" in out
    for words in (
        "pending 1 running 1 retryable 0 succeeded 1 failed 1 cancelled 0",
        "attention nothing is stuck",
        "render default",
        "letters 1 0 0 -",
        "paused",
        "default 0 0 1 4 - open",
        "ada-7-c0ffee polling 1 8 -",
        "prices ok 1/1 60/min 0/2 0 0/5",
    ):
        assert words in " ".join(out.split()), out


def test_the_document_has_the_same_with_counts_of_every_second(holdfast: CommandLine, store: SqlStore) -> None:
    settle(store, claim(store), Succeeded())
    settle(store, claim(store), Failed(JobError("ValueError", "no", retryable=False)))
    running = claim(store)
    progress(store, running, 1, "first page")

    seen = holdfast("top", "--json").succeeded().document
    assert set(seen) == {
        "store", "at", "throughput", "states", "queues", "workers", "running", "sources", "stuck",
    }  # fmt: skip
    flow = seen["throughput"]
    assert (sum(flow["enqueued"]), sum(flow["done"]), sum(flow["failed"])) == (3, 2, 1)
    assert (flow["at_least"], len(flow["enqueued"])) == (False, 60)
    assert flow["per_second"]["enqueued"] == pytest.approx(3 / flow["seconds"], abs=0.001)
    assert {state["state"]: state["count"] for state in seen["states"] if state["count"]} == {
        "running": 1, "succeeded": 1, "failed": 1,
    }  # fmt: skip
    [run] = seen["running"]
    assert (run["id"], run["worker"], run["attempt"]) == (running.job_id, "ada-7-c0ffee", 1)
    assert run["progress"]["note"] == "first page"


def test_an_interval_that_is_too_short_is_refused(here: InProcess) -> None:
    here("top", "--interval", "0").refused("--interval", "at least 0.1")
    here("top", "--interval", "nan").refused("--interval", "at least 0.1")


def test_a_store_that_is_not_there_is_said_at_the_start(inside: InProcess) -> None:
    assert "holdfast.db" in inside("top", "--once").said_no().err


@contextmanager
def shut(server: PostgresEndpoint, name: str) -> Iterator[None]:
    """A database that lets nobody in, and has thrown out everybody."""
    engine = create_engine(server.url("postgres"), isolation_level="AUTOCOMMIT")
    with engine.connect() as connection:
        connection.exec_driver_sql(f"ALTER DATABASE {name} ALLOW_CONNECTIONS false")
        connection.execute(
            text("SELECT pg_terminate_backend(pid) FROM pg_stat_activity WHERE datname = :name"), {"name": name}
        )
        yield
        connection.exec_driver_sql(f"ALTER DATABASE {name} ALLOW_CONNECTIONS true")
    engine.dispose()


@pytest.mark.parametrize("database_with_tables", ["postgresql"], indirect=True)
def test_a_server_that_goes_away_is_said_in_the_header_and_seen_again(
    holdfast: CommandLine, store: SqlStore, postgres_server: PostgresEndpoint
) -> None:
    job_id = claim(store).job_id
    name = str(store.database.engine.url.database)
    with watching(holdfast) as screen:
        screen.wait_to_show(job_id, name)
        with shut(postgres_server, name):
            screen.wait_to_show("the store is away", "Postgres did not answer", job_id)
        store.database.engine.dispose()  # its connections were thrown out as well
        store.enqueue(NewJob(task="resize"))
        # The new figures may be drawn before the header is.
        wait_until(
            lambda: screen.shows("pending 1", job_id) and not screen.shows("the store is away"),
            what="all is well again",
        )
        screen.press("q")
        assert screen.ended() == 0
