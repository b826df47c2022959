"""A job that says far more than is kept: its log is capped, the store is not hammered, and nobody beside it suffers."""

from __future__ import annotations

import json
import subprocess
import sys
from collections.abc import Iterator
from contextlib import contextmanager

import psutil
import pytest

from holdfast.domain.lifecycle import State
from holdfast.domain.logs import LogLine
from holdfast.domain.retry import RetryPolicy
from holdfast.worker.job_logs import BACKLOG_EVERY_SECONDS
from tests.chaos.databases import query
from tests.servers.waiting import DEADLINE_SECONDS
from tests.worker.site import Site

CAP = 10_000
TASKS = """
import logging
logger = logging.getLogger("chatty")

@app.task
def chatty(lines: int, by: str):
    say = print if by == "print" else logger.info
    number = 0
    while number < lines or not Path("renewed").exists():
        say(number)
        number += 1

@app.task
def neighbour(ctx: Context):
    while not Path("over").exists():
        ctx.progress(time.time())
        time.sleep(0.05)
"""
# Eleven batches of a thousand lines, and some at the end. A job that talks slowly causes smaller batches as well, at
# most as many as may be sent in its time.
MOST_STATEMENTS = 30
MOST_MEGABYTES = 60.0


def supervisor_memory(pid: int) -> float:
    return float(psutil.Process(pid).memory_info().rss) / 1024 / 1024


def talk(site: Site, lines: int, by: str) -> None:
    site.tasks(TASKS)
    worker = site.worker("--processes", "2", "--heartbeat", "0.2s")
    neighbour = site.enqueue("neighbour")
    site.wait_for_state(neighbour, State.RUNNING)
    site.wait(lambda: site.job(neighbour).progress is not None, "the neighbour's progress is stored")
    before = supervisor_memory(worker.pid)
    job_id = site.enqueue("chatty", {"lines": lines, "by": by})
    site.wait(lambda: site.store.count_logs(job_id) > 0, "it talks")
    site.wait_for_heartbeats(neighbour, 2)
    assert site.job(job_id).state is State.RUNNING, "it talks until the neighbour's lease was renewed"
    site.tell("renewed")
    site.wait(lambda: site.job(job_id).state is State.SUCCEEDED, "it has said everything", 3 * DEADLINE_SECONDS)
    site.wait(lambda: site.store.count_logs(job_id) == CAP + 1, "the log is stored to its end")
    grown = supervisor_memory(worker.pid) - before
    site.tell("over")
    site.wait_for_state(neighbour, State.SUCCEEDED)
    assert worker.stop() == 0
    # Rows that one statement stored carry the number of one transaction.
    [(appended,)] = query(site.url, "SELECT count(DISTINCT CAST(xmin AS text)) FROM holdfast_logs")
    found = list(pages(site, job_id))
    assert [line.number for line in found] == list(range(1, CAP + 2))
    assert found[-1].message.startswith(f"cut here: an attempt keeps at most {CAP:,} lines")
    assert found[-1].fields == {"truncated": True}
    [attempt] = site.store.attempts(job_id)
    print(f"{lines:,} lines by {by}: {attempt.duration_ms} ms, {attempt.cpu_ms} ms of it CPU,", end=" ")
    print(f"{appended} statements, the supervisor grew by {grown:.0f} MB")
    assert attempt.duration_ms is not None
    assert 0 < appended <= MOST_STATEMENTS + attempt.duration_ms / 1000 / BACKLOG_EVERY_SECONDS
    assert grown < MOST_MEGABYTES
    assert site.event_names(neighbour) == ["enqueued", "claimed", "succeeded"]
    assert site.count_events("lease_lost") == 0
    assert query(site.url, "SELECT count(*) FROM holdfast_refusals")[0][0] == 0


def pages(site: Site, job_id: str) -> Iterator[LogLine]:
    after = None
    while page := site.store.logs(job_id, after=after):
        yield from page
        after = (page[-1].attempt, page[-1].number)


@pytest.mark.parametrize("by", ["print", "log"])
def test_many_lines_are_capped_and_cost_the_store_and_the_neighbours_little(postgres_site: Site, by: str) -> None:
    talk(postgres_site, 200_000, by)


@pytest.mark.long
@pytest.mark.parametrize("by", ["print", "log"])
def test_a_million_lines_are_capped_and_cost_the_store_and_the_neighbours_little(postgres_site: Site, by: str) -> None:
    talk(postgres_site, 1_000_000, by)


# followers


@contextmanager
def follower(site: Site, job_id: str, *flags: str) -> Iterator[subprocess.Popen[str]]:
    command = [sys.executable, "-m", "holdfast", "--database", site.url, "jobs", "logs", job_id, "--follow", *flags]
    process = subprocess.Popen(
        command, cwd=site.folder, env=site.environment(), stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True
    )
    try:
        yield process
    finally:
        process.kill()
        process.communicate()


FOLLOWED = """
@app.task
def talk(ctx: Context):
    for number in range(3):
        print("said", number, "of attempt", ctx.attempt, flush=True)
        ctx.progress(number + 1, 3)
        # The next line is written, and the attempt ends, only when the follower has this line and the progress.
        while not Path(f"heard-{ctx.attempt}-{number}").exists(): time.sleep(0.01)
        if ctx.attempt == 2: return
        while not Path(f"done-{number + 1}").exists(): time.sleep(0.01)
    raise ValueError("once more")
"""


def test_a_follower_hears_every_line_as_it_is_said_and_the_end(site: Site) -> None:
    """Each line is said after the one before it was heard: none waits for a full batch, or for the end of the job."""
    site.tasks(FOLLOWED)
    job_id = site.enqueue("talk", max_attempts=2, retry=RetryPolicy("fixed", base=0.0, jitter=0.0))
    with follower(site, job_id, "--json") as process:
        worker = site.worker("--processes", "1")
        assert process.stdout is not None
        events = []
        for text in process.stdout:
            event = json.loads(text)
            events.append(event)
            if event["event"] == "progress":
                site.tell(f"done-{event['progress']['done']}")
            if event["event"] != "log" or not event["message"].startswith("said"):
                continue
            site.tell(f"heard-{event['attempt']}-{event['message'].split()[1]}")
        assert process.wait(DEADLINE_SECONDS) == 0
    assert worker.stop() == 0
    lines = [(event["attempt"], event["message"]) for event in events if event["event"] == "log"]
    assert lines == [*((1, f"said {number} of attempt 1") for number in range(3)), (2, "said 0 of attempt 2")]
    heard = [event["progress"]["done"] for event in events if event["event"] == "progress"]
    assert heard[:3] == [1, 2, 3]
    assert (events[-1]["event"], events[-1]["state"], events[-1]["attempt"]) == ("ended", "succeeded", 2)
