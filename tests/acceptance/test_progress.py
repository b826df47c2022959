"""Who waits for a long command sees how far it is, on a terminal; a program or a pipe sees nothing of it."""

import os
from collections.abc import Iterator
from contextlib import ExitStack, contextmanager

import pytest

from holdfast import NewJob
from holdfast.cli.progress_shown import Steps, words
from holdfast.domain.lifecycle import State
from holdfast.domain.outcome import Failed, JobError, Report
from holdfast.domain.retention import Kept
from holdfast.stores.sql_store import SqlStore
from tests.acceptance.command_line import CommandLine
from tests.acceptance.terminal import Terminal, terminal

on_a_file = pytest.mark.parametrize("database_with_tables", ["sqlite"], indirect=True)


def fail(store: SqlStore, count: int, queue: str = "default") -> None:
    store.enqueue_many([NewJob(task="add", queue=queue) for _ in range(count)])
    error = JobError("ValueError", "no", retryable=False)
    store.settle(
        [Report(c.job_id, c.attempt, c.lease_token, Failed(error), "ada") for c in store.claim("ada", count, [queue])]
    )


@contextmanager
def waited_for(holdfast: CommandLine, *arguments: str, stdout: int | None = None) -> Iterator[Terminal]:
    command = holdfast.arguments(*arguments)
    with terminal(command, holdfast.folder, holdfast.environment(), (120, 30), stdout) as opened:
        yield opened


@on_a_file
def test_verify_counts_what_it_reads_on_the_terminal_and_only_the_answer_goes_down_the_pipe(
    holdfast: CommandLine, store: SqlStore
) -> None:
    store.enqueue_many([NewJob(task="add") for _ in range(3)])
    reading, writing = os.pipe()
    with waited_for(holdfast, "verify", stdout=writing) as seen, waited_for(holdfast, "verify", "--json") as program:
        assert (seen.ended(), program.ended()) == (0, 0)
        os.close(writing)
        with os.fdopen(reading) as pipe:
            assert pipe.read() == "In order: 3 jobs, 3 events, no violation.\n"
        assert "reading histories" in seen.text
        assert "3 of 3 events" in seen.text
        assert "reading histories" not in program.text
    assert holdfast("verify").succeeded().err == ""


@on_a_file
def test_bulk_commands_say_how_many_of_how_many(holdfast: CommandLine, store: SqlStore) -> None:
    fail(store, 3, "again")
    fail(store, 2, "away")
    fail(store, 4, "old")
    store.set_retention(Kept.JOBS, "old", State.FAILED, 0.0)
    with ExitStack() as open_terminals:
        requeue, purge, retention, upgrade = (
            open_terminals.enter_context(waited_for(holdfast, *command))
            for command in (
                ("dead", "requeue", "--all", "--queue", "again", "--yes"),
                ("dead", "purge", "--queue", "away", "--yes"),
                ("retention", "run"),
                ("db", "upgrade"),
            )
        )
        assert [screen.ended() for screen in (requeue, purge, retention, upgrade)] == [0, 0, 0, 0]
        assert "requeueing" in requeue.text
        assert "3 of 3" in requeue.text
        assert "2 of 2" in purge.text
        assert "removing jobs" in retention.text
        assert "4 of 4" in retention.text
        assert "0 of 0" not in retention.text
        assert "bringing the tables up to date" in upgrade.text
        assert "3 jobs are pending again" in requeue.text
        assert "2 jobs deleted" in purge.text


def test_a_total_that_nobody_knows_is_not_made_up() -> None:
    assert words(3, 10, True, "events") == "3 of 10 events"
    assert words(3, 10, False, "jobs") == "3 of 10 jobs or more"
    assert words(1_234, None, True, "jobs") == "1,234 jobs"
    assert words(11, 10, True, "jobs") == words(11, 10, False, "jobs") == "11 jobs"

    drawn: list[tuple[int, int | None]] = []
    steps = Steps(True, lambda done, total, _words: drawn.append((done, total)), "")
    for told in ((3, 10, True), (3, 10, False), (3, None, True), (11, 10, True)):
        steps.told(*told)
    assert drawn == [(3, 10), (3, None), (3, None), (11, None)]
