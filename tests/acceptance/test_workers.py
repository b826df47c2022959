"""`holdfast workers`, `holdfast jobs logs`, and what `holdfast stuck` says of a task that nobody knows."""

from datetime import UTC, datetime, timedelta

from holdfast.domain.job import NewJob
from holdfast.domain.logs import LogLine, Stream
from holdfast.domain.manifest import TaskInfo
from holdfast.domain.views import WorkerRow
from holdfast.stores.sql_store import SqlStore
from tests.acceptance.command_line import CommandLine, InProcess

AT = datetime(2026, 1, 2, 3, 4, 5, tzinfo=UTC)


def test_workers_are_listed_with_when_they_were_last_heard_of(
    holdfast: CommandLine, here: InProcess, store: SqlStore
) -> None:
    assert "No worker" in here("workers").succeeded().err
    store.keep_worker(
        WorkerRow(id="host-7-ab", host="host", pid=7, state="polling", app="tasks:app", queues=("a", "b"), running=3)
    )
    store.keep_worker(WorkerRow(id="host-8-cd", host="host", pid=8, state="stopped"))
    heading, first, second = here("workers").succeeded().out.splitlines()
    assert heading.split() == ["id", "state", "app", "queues", "running", "beat"]
    assert first.split()[:5] == ["host-7-ab", "polling", "tasks:app", "a,b", "3"]
    assert second.split()[:3] == ["host-8-cd", "stopped", "all"]
    found = holdfast("workers", "--json").succeeded().document["workers"]
    assert [(worker["id"], worker["queues"]) for worker in found] == [("host-7-ab", ["a", "b"]), ("host-8-cd", None)]
    assert found[0]["beat_at"].endswith("Z")
    assert found[1]["stopped_at"] is not None


def test_what_a_job_said_is_printed_in_order(holdfast: CommandLine, here: InProcess, store: SqlStore) -> None:
    job_id = store.enqueue(NewJob(task="add")).id
    assert "nothing" in here("jobs", "logs", job_id).succeeded().err
    store.append_logs(
        [
            LogLine(job_id, 1, 0, AT, Stream.LOG, "halfway", "info", {"done": 5}),
            LogLine(job_id, 1, 1, AT, Stream.STDERR, "careful \x1b[31m"),
            LogLine(job_id, 2, 0, AT, Stream.STDOUT, "again"),
        ]
    )
    assert here("jobs", "logs", job_id).succeeded().out.splitlines() == [
        '2026-01-02T03:04:05.000000Z  1  info     halfway {"done": 5}',
        "2026-01-02T03:04:05.000000Z  1  stderr   careful \\x1b[31m",
        "2026-01-02T03:04:05.000000Z  2  stdout   again",
    ]
    [line] = holdfast("jobs", "logs", job_id, "--attempt", "2", "--json").succeeded().document["logs"]
    assert (line["attempt"], line["stream"], line["message"]) == (2, "stdout", "again")


def test_more_lines_than_a_page(here: InProcess, store: SqlStore) -> None:
    job_id = store.enqueue(NewJob(task="add")).id
    store.append_logs([LogLine(job_id, 1, number, AT, Stream.STDOUT, str(number)) for number in range(2500)])
    found = here("jobs", "logs", job_id, "--json").succeeded().document["logs"]
    assert [line["number"] for line in found] == list(range(2500))


def test_logs_of_no_job(here: InProcess) -> None:
    assert "no job" in here("jobs", "logs", "00000000-0000-0000-0000-000000000007").said_no().err
    here("jobs", "logs", "x").refused("job_id", "UUID")


def test_a_task_that_no_worker_knows_is_the_reason(here: InProcess, store: SqlStore) -> None:
    long_ago = datetime.now(UTC) - timedelta(minutes=6)
    store.announce([TaskInfo("known")])
    store.keep_worker(WorkerRow(id="host-7-ab", host="host", pid=7, state="polling"))
    unknown = store.enqueue(NewJob(task="unknown", run_after=long_ago)).id
    known = store.enqueue(NewJob(task="known", run_after=long_ago)).id
    found = {stuck["job"]["id"]: stuck["reason"] for stuck in here("stuck", "--json").succeeded().document["stuck"]}
    assert found == {unknown: "no worker knows its task", known: "due for more than five minutes and not claimed"}
    assert store.job(unknown).state == "pending"
