"""Limits of sources under fire: several processes, random kills, fifty claimers at once. What happened is read from the
audit log.

The processes are forked by one that has imported everything: a start costs next to nothing, and a kill is a kill.
"""

import json
import os
import random
import signal
import sys
import time
import traceback
from collections import deque
from collections.abc import Callable, Iterator
from concurrent.futures import ThreadPoolExecutor
from contextlib import contextmanager
from datetime import datetime
from itertools import chain, pairwise
from pathlib import Path
from threading import Barrier
from typing import NamedTuple

import pytest

from holdfast.domain.job import Claimed, NewJob
from holdfast.domain.lifecycle import ACTIVE
from holdfast.domain.outcome import Report, Succeeded
from holdfast.stores.postgres import open_postgres
from holdfast.stores.sql_store import SqlStore
from tests.chaos.crew import Member
from tests.chaos.databases import assert_verified, is_sqlite, opened, query
from tests.chaos.limits import Limit, stretches
from tests.servers.waiting import wait_until

RATE, BURST = 50.0, 5
CLAIMERS, SLOTS = 4, 5
NARROW, WIDE, REST = 150, 100, 250  # 500 jobs on 20 slots
LEASE_SECONDS = 0.2


@contextmanager
def nursery() -> Iterator[Member]:
    member = Member()
    try:
        yield member
    finally:
        member.kill()


def send(member: Member, errand: Callable[..., object], *arguments: object) -> object:
    member.prepare(errand, arguments)
    member.wait_ready()
    member.go()
    return member.result()


def forked(errand: Callable[..., object], url: str, name: str, *more: str) -> int:
    """A process of its own, which ends with 0 when the errand has returned."""
    child = os.fork()
    if child:
        return child
    code = 1
    try:
        errand(url, name, *more)
        code = 0
    except BaseException:
        traceback.print_exc(file=sys.stderr)
    finally:
        os._exit(code)


# A rate


class Asked(NamedTuple):
    """A claim: from when to when it took, by the clock that all processes have in common, and what it brought."""

    began: float
    ended: float
    jobs: list[str]


def work(url: str, name: str, diary: str) -> None:
    """Fill the slots and empty them again, the oldest first, until every job has ended. What was claimed is written
    down."""
    asked: list[Asked] = []
    held: deque[Claimed] = deque()
    with opened(url) as store:
        while True:
            began = time.monotonic()
            claims = store.claim(name, SLOTS - len(held))
            asked.append(Asked(began, time.monotonic(), [job.job_id for job in claims]))
            held += claims
            done = [held.popleft() for _ in range((len(held) + 1) // 2)]
            store.settle([Report(job.job_id, job.attempt, job.lease_token, Succeeded()) for job in done])
            if not done and not any(state in ACTIVE for state in store.counts()):
                break
            if not done:
                time.sleep(min(0.05, claims.again_in or 0.05))
    (Path(diary) / name).write_text(json.dumps(asked))


def work_in_processes(url: str, diary: str) -> list[int]:
    children = [forked(work, url, f"worker-{number}", diary) for number in range(CLAIMERS)]
    return [os.waitpid(child, 0)[1] for child in children]


def work_in_threads(url: str, diary: str) -> list[int]:
    with ThreadPoolExecutor(CLAIMERS) as threads:
        done = [threads.submit(work, url, f"worker-{number}", diary) for number in range(CLAIMERS)]
        for each in done:
            each.result()
    return [0] * CLAIMERS


def assert_in_order(asked: list[Asked], ids: list[str]) -> None:
    """Of these jobs no claim brought an earlier one than any claim that was over before it began. (Of two at the same
    time, which pass over what the other has locked, either may be the first.) Within a claim they are in order too."""
    places = {job_id: place for place, job_id in enumerate(ids)}
    found = [(each, [places[job_id] for job_id in each.jobs if job_id in places]) for each in asked]
    some = [(each, here) for each, here in found if here]
    assert sorted(place for _, here in some for place in here) == list(range(len(ids)))
    assert all(here == sorted(here) for _, here in some)
    for earlier, before in some:
        for later, after in some:
            assert earlier.ended > later.began or max(before) < min(after), (earlier, later)


def moments(url: str, where: str) -> list[datetime]:
    """When these jobs were claimed, in order."""
    rows = query(
        url,
        "SELECT e.at FROM holdfast_events e JOIN holdfast_jobs j ON j.id = e.job_id"
        f" WHERE e.event = 'claimed' AND {where} ORDER BY e.at",
    )
    return [at if isinstance(at, datetime) else datetime.fromisoformat(at.replace("Z", "+00:00")) for (at,) in rows]


def test_no_window_of_time_has_more_starts_than_the_rate_allows(
    store: SqlStore, store_url: str, tmp_path: Path
) -> None:
    diary = tmp_path / "diary"
    diary.mkdir()
    store.set_source("narrow", rate_limit_per_minute=RATE * 60, burst=BURST)
    store.set_source("wide", max_concurrent=50)
    store.enqueue_many([NewJob(task="add", source="narrow") for _ in range(NARROW)])
    store.enqueue_many([NewJob(task="add", source="wide") for _ in range(WIDE)])
    rest = [NewJob(task="add", source=("free", None)[number % 2]) for number in range(REST)]
    others = [answer.id for answer in store.enqueue_many(rest)]
    if is_sqlite(store_url):
        assert work_in_threads(store_url, str(diary)) == [0] * CLAIMERS
    else:
        with nursery() as member:
            assert send(member, work_in_processes, store_url, str(diary)) == [0] * CLAIMERS

    starts = [moment.timestamp() for moment in moments(store_url, "j.source = 'narrow'")]
    assert len(starts) == NARROW
    for first in range(NARROW):
        for last in range(first, NARROW):
            allowed = RATE * (starts[last] - starts[first]) + BURST
            assert last - first + 1 <= allowed + 1e-6, (first, last)
    # Claimed once, ended once: nobody held a lease while waiting, and nothing was charged for it.
    events = "SELECT event, count(*) FROM holdfast_events GROUP BY event ORDER BY event"
    jobs = NARROW + WIDE + REST
    assert query(store_url, events) == [("claimed", jobs), ("enqueued", jobs), ("succeeded", jobs)]
    assert query(store_url, "SELECT sum(failures), sum(crashes), max(attempt) FROM holdfast_jobs") == [(0, 0, 1)]
    # What nobody limits went in its order, as if the limited ones were not there.
    diaries = sorted(diary.iterdir())
    assert len(diaries) == CLAIMERS
    asked = [Asked(*each) for each in chain.from_iterable(json.loads(page.read_text()) for page in diaries)]
    assert_in_order(asked, others)
    assert_verified(store_url)


# A limit of one, and kills


SINGLE = NewJob(task="add", source="single", lease_seconds=LEASE_SECONDS, max_crashes=1000)


def hold_one_after_the_other(url: str, name: str) -> None:
    """For each job that is done another one is enqueued: there is work until the last kill, however late that is."""
    chance = random.Random(name)
    with opened(url) as store:
        while True:
            for job in store.claim(name, 3):
                time.sleep(chance.uniform(0, 0.03))
                store.settle([Report(job.job_id, job.attempt, job.lease_token, Succeeded())])
                store.enqueue(SINGLE)
            store.reap(name, period=0.1, lease_seconds=3600, heartbeat_seconds=0)


def kill_until_lost(url: str, losses: int) -> None:
    """Four at work; now and then one of them is killed, most often the one that holds the job, and another takes its
    place. It ends when that many leases were lost."""
    chance = random.Random(1)
    children = {f"first-{number}": 0 for number in range(CLAIMERS)}
    for name in children:
        children[name] = forked(hold_one_after_the_other, url, name)

    def holders() -> list[str]:
        held = query(url, "SELECT lease_owner FROM holdfast_jobs WHERE state = 'running'")
        return [name for (name,) in held if name in children]

    kills = 0
    while query(url, "SELECT count(*) FROM holdfast_events WHERE event = 'lease_lost'")[0][0] < losses:
        wait_until(lambda: bool(holders()), what="one of them holds a job")
        time.sleep(chance.uniform(0, 0.02))
        likely = holders() if chance.random() < 0.7 else []
        kill(children.pop(chance.choice(likely or list(children))))
        kills += 1
        children[f"after-{kills}"] = forked(hold_one_after_the_other, url, f"after-{kills}")
    for child in children.values():
        kill(child)


def kill(child: int) -> None:
    os.kill(child, signal.SIGKILL)
    _pid, status = os.waitpid(child, 0)
    assert os.WIFSIGNALED(status), "it was still at work"


LONGER = [pytest.mark.long, pytest.mark.timeout(1200)]


@pytest.mark.parametrize(
    ("store_url", "losses"),
    [
        pytest.param("postgres", 10, id="postgres"),
        pytest.param("postgres", 150, id="postgres, longer", marks=LONGER),
        pytest.param("sqlite", 150, id="sqlite, longer", marks=LONGER),
    ],
    indirect=["store_url"],
)
def test_a_limit_of_one_is_kept_under_random_kills(store: SqlStore, store_url: str, losses: int) -> None:
    store.set_source("single", max_concurrent=1)
    store.enqueue_many([SINGLE] * 200)
    with nursery() as member:
        send(member, kill_until_lost, store_url, losses)
    attempts = stretches(store_url, Limit("source", "single", 1))
    assert len(attempts) > losses
    assert all(ended <= began for (_, ended), (began, _) in pairwise(attempts))
    running = "SELECT count(*) FROM holdfast_jobs WHERE state = 'running'"
    assert query(store_url, running)[0][0] <= 1
    assert_verified(store_url)


# A probe


def probe_and_hang(url: str) -> None:
    with opened(url) as store:
        store.claim("prober", 10)
        time.sleep(600)


def test_fifty_claimers_get_one_probe_of_a_half_open_source(postgres_url: str) -> None:
    """And one more when the first is lost: to a kill, and then to claimers that forget about theirs."""
    claimers = 50
    store = SqlStore(open_postgres(postgres_url, pool_size=8))
    store.set_source("broken", max_concurrent=20)
    query(postgres_url, "UPDATE holdfast_sources SET failure_streak = 5, paused_until = now() - interval '1 second'")
    store.enqueue_many(
        [NewJob(task="add", source="broken", lease_seconds=LEASE_SECONDS, max_crashes=9) for _ in range(200)]
    )
    together = Barrier(claimers)

    def probe(number: int) -> int:
        together.wait()
        return sum(len(store.claim(f"claimer-{number}", 10)) for _ in range(3))

    def reaped() -> bool:
        return len(store.reap("reaper", period=0.05, lease_seconds=3600, heartbeat_seconds=0).settled) > 0

    owners = "SELECT lease_owner FROM holdfast_jobs WHERE state = 'running'"
    with ThreadPoolExecutor(claimers) as threads:
        with nursery() as member:
            member.prepare(probe_and_hang, [postgres_url])
            member.wait_ready()
            member.go()
            wait_until(lambda: query(postgres_url, owners) == [("prober",)], what="the probe")
            assert sum(threads.map(probe, range(claimers))) == 0
        assert query(postgres_url, owners) == [("prober",)], "it was killed, and nobody knows of it yet"
        assert store.claim("claimer", 10) == []
        wait_until(reaped, what="the killed prober is reaped")
        for _ in range(2):
            assert sum(threads.map(probe, range(claimers))) == 1
            wait_until(reaped, what="the lost probe is reaped")
    store.close()
    assert_verified(postgres_url)
