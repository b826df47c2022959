"""`holdfast jobs logs` with its filters and `--follow`, and what `jobs show` says of logs and progress."""

import json
import os
import signal
import subprocess
from datetime import UTC, datetime

from holdfast.domain.answers import Beat
from holdfast.domain.job import Claimed, NewJob
from holdfast.domain.logs import LogLine, Stream
from holdfast.domain.outcome import Report, Succeeded
from holdfast.stores.sql_store import SqlStore
from tests.acceptance.command_line import CommandLine, InProcess
from tests.servers.waiting import DEADLINE_SECONDS

AT = datetime(2026, 1, 2, 3, 4, 5, tzinfo=UTC)


def line(job_id: str, number: int, message: str, level: str | None = None, attempt: int = 1) -> LogLine:
    stream = Stream.STDOUT if level is None else Stream.LOG
    return LogLine(job_id, attempt, number, AT, stream, message, level)


def claimed(store: SqlStore) -> Claimed:
    job_id = store.enqueue(NewJob(task="add")).id
    found = store.claim_job("ann", job_id)
    assert found is not None
    return found


def finish(store: SqlStore, job: Claimed, progress: object = None) -> None:
    store.settle([Report(job.job_id, job.attempt, job.lease_token, Succeeded(), "ann", progress=progress)])


def test_lost_lines_are_counted(here: InProcess, store: SqlStore) -> None:
    job_id = store.enqueue(NewJob(task="add")).id
    store.append_logs([line(job_id, 1, "first"), line(job_id, 41, "second"), line(job_id, 3, "again", attempt=2)])
    shown = here("jobs", "logs", job_id).succeeded().out.splitlines()
    assert [text.split("  ")[-1].strip() for text in shown] == [
        "first",
        "… 39 lines lost",
        "second",
        "… 2 lines lost",
        "again",
    ]
    document = here("jobs", "logs", job_id, "--json").succeeded().document
    assert (len(document["logs"]), document["lost"]) == (3, 41)


def test_only_what_is_asked_for(here: InProcess, store: SqlStore) -> None:
    job_id = store.enqueue(NewJob(task="add")).id
    store.append_logs(
        [
            line(job_id, 1, "printed"),
            line(job_id, 2, "low", "debug"),
            line(job_id, 3, "mine", "my own level"),
            line(job_id, 4, "high", "error"),
        ]
    )

    def shown(*flags: str) -> list[str]:
        return [found["message"] for found in here("jobs", "logs", job_id, "--json", *flags).document["logs"]]

    assert shown("--stream", "stdout") == ["printed"]
    assert shown("--stream", "log") == ["low", "mine", "high"]
    assert shown("--level", "info") == ["mine", "high"]
    assert shown("--level", "error") == ["high"]
    here("jobs", "logs", job_id, "--level", "loud").refused("loud")


def test_an_exception_is_printed_below_its_line(here: InProcess, store: SqlStore) -> None:
    job_id = store.enqueue(NewJob(task="add")).id
    fields = {"logger": "shop", "exception": "Traceback:\n  x\nValueError: no"}
    store.append_logs([LogLine(job_id, 1, 1, AT, Stream.LOG, "broke", "error", fields)])
    assert here("jobs", "logs", job_id).succeeded().out.splitlines() == [
        '2026-01-02T03:04:05.000000Z  1  error    broke {"logger": "shop"}',
        "    Traceback:",
        "      x",
        "    ValueError: no",
    ]


def test_following_a_job_that_has_ended(holdfast: CommandLine, store: SqlStore) -> None:
    job = claimed(store)
    store.append_logs([line(job.job_id, number, f"line {number}") for number in range(1, 2501)])
    finish(store, job, {"done": 5, "total": 5})
    shown = holdfast("jobs", "logs", "-f", job.job_id).succeeded().out.splitlines()
    assert len(shown) == 2501
    assert shown[-1] == "… the job is succeeded (attempt 1)"


def test_following_as_documents(holdfast: CommandLine, store: SqlStore) -> None:
    job = claimed(store)
    arguments = holdfast.arguments("jobs", "logs", job.job_id, "--follow", "--json")
    with subprocess.Popen(
        arguments, cwd=holdfast.folder, env=holdfast.environment(), stdout=subprocess.PIPE, text=True
    ) as process:
        assert process.stdout is not None
        store.append_logs([line(job.job_id, 1, "first")])
        first = json.loads(process.stdout.readline())
        store.heartbeat([Beat(job.job_id, job.attempt, job.lease_token, "ann", {"done": 1})])
        second = json.loads(process.stdout.readline())
        store.append_logs([line(job.job_id, 4, "fourth", "warning")])
        third, fourth = (json.loads(process.stdout.readline()) for _ in range(2))
        finish(store, job)
        last = json.loads(process.stdout.readline())
        assert process.wait(DEADLINE_SECONDS) == 0
    assert (first["event"], first["message"], first["stream"], first["at"]) == (
        "log",
        "first",
        "stdout",
        "2026-01-02T03:04:05.000000Z",
    )
    assert second == {"event": "progress", "attempt": 1, "progress": {"done": 1}}
    assert third == {"event": "lost", "attempt": 1, "count": 2}
    assert (fourth["message"], fourth["level"]) == ("fourth", "warning")
    assert last == {"event": "ended", "id": job.job_id, "state": "succeeded", "attempt": 1}


def test_following_is_left_quietly(holdfast: CommandLine, store: SqlStore) -> None:
    job = claimed(store)
    store.append_logs([line(job.job_id, 1, "first")])
    with subprocess.Popen(
        holdfast.arguments("jobs", "logs", job.job_id, "-f"),
        cwd=holdfast.folder,
        env=holdfast.environment(),
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        text=True,
    ) as process:
        assert process.stdout is not None
        assert process.stdout.readline().endswith("first\n")
        os.kill(process.pid, signal.SIGINT)
        out, err = process.communicate(timeout=DEADLINE_SECONDS)
        assert (process.returncode, out, err) == (130, "", "")


def test_show_has_progress_and_the_number_of_lines(here: InProcess, store: SqlStore) -> None:
    job = claimed(store)
    store.heartbeat([Beat(job.job_id, 1, job.lease_token, "ann", {"done": 2, "total": 5, "note": "third page"})])
    store.append_logs([line(job.job_id, 1, "first"), line(job.job_id, 2, "second")])
    shown = here("jobs", "show", job.job_id).succeeded().out
    assert "████████░░░░░░░░░░░░  40 %  2 of 5  third page" in shown
    assert f"log lines: 2 (holdfast jobs logs {job.job_id})" in shown
    assert here("jobs", "show", job.job_id, "--json").succeeded().document["log_lines"] == 2
    finish(store, job, {"done": 5})
    document = here("jobs", "show", job.job_id, "--json").succeeded().document
    assert document["progress"] == {"done": 5}, "the last word comes with the report"
