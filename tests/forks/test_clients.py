"""Client programs that fork: each process reads its own rows on its own connections."""

from __future__ import annotations

import json
import os
import signal
import subprocess
import sys
from contextlib import suppress

from tests.chaos.databases import query
from tests.programs import REPOSITORY
from tests.remote.fleet import Fleet

DEADLINE_SECONDS = 240


def run(scenarios: str, *store: str) -> list[object]:
    """The lines that the program prints; its last one lists the problems, each with its scenario."""
    command = [sys.executable, "-W", "ignore", "-m", "tests.forks.program", scenarios, *store]
    program = subprocess.Popen(
        command, cwd=REPOSITORY, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True, start_new_session=True
    )
    try:
        output, errors = program.communicate(timeout=DEADLINE_SECONDS)
    finally:
        with suppress(ProcessLookupError):  # children that hang
            os.killpg(program.pid, signal.SIGKILL)
    assert program.returncode == 0, errors[-4000:]
    assert not errors, errors[-4000:]
    return [json.loads(line) for line in output.splitlines()]


def test_forked_processes_read_their_own_rows(store_url: str) -> None:
    assert run("read_at_once,read_normally,read_killed,map_in_pool,fork_twice", store_url) == [[]]


def test_child_that_is_forked_during_calls_of_other_threads_reads_its_own_rows(store_url: str) -> None:
    assert run("fork_during_calls", store_url) == [[]]


def test_forked_processes_read_their_own_rows_over_http(sqlite_fleet: Fleet) -> None:
    scenarios = "read_normally,fork_during_calls,map_in_pool,fork_twice"
    assert run(scenarios, sqlite_fleet.plane().url, sqlite_fleet.token) == [[]]


def test_fork_in_c_is_noticed_at_first_call(postgres_url: str, sqlite_fleet: Fleet) -> None:
    assert run("read_after_fork_in_c", postgres_url) == [[]]
    assert run("read_after_fork_in_c", sqlite_fleet.plane().url, sqlite_fleet.token) == [[]]


def test_sqlite_file_is_refused_after_fork_in_c(sqlite_url: str) -> None:
    assert run("refuse_after_fork_in_c", sqlite_url) == [[]]


def test_postgres_session_survives_calls_and_exit_of_forked_child(postgres_url: str) -> None:
    assert run("keep_session", postgres_url) == [[]]


def test_connection_with_open_transaction_is_refused_in_forked_child(store_url: str) -> None:
    assert run("fork_in_transaction", store_url) == [[]]


def test_transaction_of_parent_survives_child_that_leaves_its_block(store_url: str) -> None:
    assert run("leave_transaction", store_url) == [[]]


def test_forked_child_holds_its_own_locks_on_sqlite_file(sqlite_url: str) -> None:
    assert run("hold_locks", sqlite_url) == [[]]


def test_commit_of_forked_child_survives_other_processes_closing_sqlite_file(sqlite_url: str) -> None:
    committed, problems = run("commit_after_parent", sqlite_url)
    assert problems == []
    assert isinstance(committed, list)
    assert [row[0] for row in query(sqlite_url, f"SELECT id FROM holdfast_jobs WHERE id = '{committed[0]}'")]
