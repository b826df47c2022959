"""What we promise, line by line: each test has the name of its promise, and docs/reliability.md names the tests.

These are the promises in their plainest form. What tries to break each of them in every way that we know is elsewhere:
the simulation, the torture, the steps that fail one by one, the chaos tests.
"""

import re
import signal
import subprocess
import sys
from collections.abc import Callable, Iterator
from concurrent.futures import ThreadPoolExecutor
from contextlib import contextmanager
from itertools import chain
from pathlib import Path

import pytest
import redis

from holdfast.domain.answers import Beat, Status
from holdfast.domain.errors import HoldfastError
from holdfast.domain.job import Claimed, NewJob
from holdfast.domain.lifecycle import State
from holdfast.domain.outcome import Failed, JobError, Outcome, Released, Report, Succeeded
from holdfast.stores.schema import metadata
from holdfast.stores.sql_store import SqlStore
from holdfast.stores.upgrade import upgrade
from holdfast.throwaway.postgres import PostgresServer
from holdfast.throwaway.valkey import ValkeyServer
from holdfast.wiring.sql import open_database
from tests.acceptance.command_line import CommandLine
from tests.acceptance.test_verify import tamper
from tests.chaos.databases import MovableClock, assert_verified, opened, query
from tests.servers.waiting import wait_until
from tests.transports.streaming import Fleet
from tests.worker.site import Site, patched

DEFAULT_LEASE, DEFAULT_PERIOD, PROMISED = 60.0, 10.0, 75.0


def report(job: Claimed, outcome: Outcome | None = None, worker: str = "ann") -> Report:
    return Report(job.job_id, job.attempt, job.lease_token, outcome or Succeeded(), worker=worker)


def reaped(store: SqlStore) -> list[str]:
    return [settled.job_id for settled in store.reap("reaper", period=DEFAULT_PERIOD - 0.5).settled]


# 1

ENQUEUEING = """
import sys
from holdfast.domain.job import NewJob
from holdfast.wiring.sql import open_store
store = open_store(sys.argv[1])
while True:
    print(store.enqueue(NewJob(task="add")).id, flush=True)
"""


@contextmanager
def enqueueing(url: str) -> Iterator[subprocess.Popen[str]]:
    command = [sys.executable, "-c", ENQUEUEING, url]
    with subprocess.Popen(command, stdout=subprocess.PIPE, stderr=subprocess.DEVNULL, text=True) as client:
        yield client
        client.kill()


def test_an_acknowledged_enqueue_survives_any_crash(sqlite_url: str) -> None:
    with PostgresServer({"synchronous_commit": "on"}) as server:
        server.create_database("ledger")
        postgres_url = server.url("ledger")
        database = open_database(postgres_url)
        upgrade(database.engine)
        database.close()
        crashes: list[tuple[str, Callable[[subprocess.Popen[str]], None]]] = [
            (sqlite_url, lambda client: client.kill()),
            (postgres_url, lambda client: client.kill()),
            (postgres_url, lambda _client: server.restart("immediate")),
        ]
        for url, crash in crashes:
            with enqueueing(url) as client:
                assert client.stdout is not None
                acknowledged = [client.stdout.readline().strip() for _ in range(30)]
                crash(client)
                client.kill()
                acknowledged += [line.strip() for line in client.stdout if line.endswith("\n")]
            stored = {str(row[0]) for row in query(url, "SELECT CAST(id AS text) FROM holdfast_jobs")}
            assert set(acknowledged) <= stored
            assert_verified(url)


# 2


def test_at_most_one_worker_holds_a_job_s_lease(store_url: str, store: SqlStore) -> None:
    ids = [answer.id for answer in store.enqueue_many([NewJob(task="add")] * 200)]

    def claim_all(number: int) -> list[Claimed]:
        with opened(store_url) as own:
            return list(chain.from_iterable(iter(lambda: own.claim(f"worker-{number}", 7), [])))

    with ThreadPoolExecutor(6) as workers:
        claimed = list(chain.from_iterable(workers.map(claim_all, range(6))))
    assert sorted(job.job_id for job in claimed) == sorted(ids)
    # Nobody else gets it by asking for it, and a lease is no use to who does not know its token.
    assert store.claim_job("thief", ids[0]) is None
    [answer] = store.heartbeat([Beat(ids[0], 1, "guessed")])
    assert answer.status is Status.REFUSED
    assert_verified(store_url)


# 3


def test_a_job_has_exactly_one_recorded_outcome_and_a_zombie_s_report_is_refused_and_kept_as_evidence(
    clock: MovableClock,
) -> None:
    store = clock.store
    job_id = store.enqueue(NewJob(task="add")).id
    [zombie] = store.claim("ann")
    clock.advance(DEFAULT_PERIOD)
    assert reaped(store) == []
    for _ in range(8):
        clock.advance(DEFAULT_PERIOD)
        reaped(store)
    [heir] = store.claim("bob")
    assert store.settle([report(heir, Succeeded(2), "bob")])[0].status is Status.APPLIED
    [late] = store.settle([report(zombie, Succeeded(1))])
    assert late.status is Status.REFUSED
    assert store.job(job_id).result == 2
    assert [event.event for event in store.events(job_id)].count("succeeded") == 1
    [evidence] = store.refusals(job_id)
    assert (evidence.attempt, evidence.worker) == (1, "ann")


# 4


def test_a_dead_worker_s_jobs_are_claimable_within_75_s_by_default_while_some_reaper_runs(clock: MovableClock) -> None:
    store = clock.store
    store.enqueue_many([NewJob(task="add")] * 50)
    clock.advance(DEFAULT_PERIOD)
    reaped(store)
    assert len(store.claim("dead", 50)) == 50
    waited = 0.0
    while waited + DEFAULT_PERIOD <= PROMISED:
        clock.advance(DEFAULT_PERIOD)
        waited += DEFAULT_PERIOD
        reaped(store)
    assert len(store.claim("alive", 50)) == 50
    jobs = store.jobs(limit=50).items
    assert {(job.attempt, job.crashes, job.failures) for job in jobs} == {(2, 1, 0)}


# 5


def test_a_deploy_a_rate_limit_an_open_breaker_and_a_store_outage_charge_nothing(
    site: Site, clock: MovableClock
) -> None:
    site.tasks("""
        @app.task
        def long(ctx: Context):
            if ctx.attempt == 1:
                Path("began").write_text("now")
                time.sleep(600)
    """)
    job_id = site.enqueue("long")
    patient = patched("from holdfast.worker import draining; draining.UNDELIVERED_SECONDS = 600.0")
    leaving = site.worker("--processes", "1", "--grace", "0s", program=patient)
    site.wait_for_file("began")
    assert leaving.stop() == 0
    assert site.event_names(job_id) == ["enqueued", "claimed", "released"]
    site.drain()
    assert site.job(job_id).state is State.SUCCEEDED
    assert site.charged() == (0, 0)

    store = clock.store
    clock.advance(3600)  # the site is on the same database: its reaper was on duty until a moment ago
    store.set_source("slow", rate_limit_per_minute=1)
    store.set_source("broken", breaker_threshold=1)
    store.enqueue_many([NewJob(task="add", source="slow")] * 3)
    assert len(store.claim("ann", 10)) == 1, "the others wait for the rate"
    store.enqueue_many([NewJob(task="add", source="broken", max_attempts=9)] * 3)
    first, *others = store.claim("ann", 10)
    store.settle([report(first, Failed(JobError("Error", "no answer")))])
    store.settle([report(job, Released()) for job in others])
    assert store.claim("ann", 10) == [], "the breaker is open"
    store.enqueue(NewJob(task="add"))
    running = store.claim("bob", 1)
    clock.advance(600)  # nobody could reach the store
    assert reaped(store) == []
    assert {answer.status for answer in store.settle([report(job, Released(), "bob") for job in running])} == {
        Status.APPLIED
    }
    assert site.charged() == (1, 0), "for the one failure that was real"


# 6


def test_a_job_that_kills_its_worker_is_dead_lettered_after_3_crashes(site: Site) -> None:
    site.tasks("""
        @app.task(max_attempts=100)
        def poison():
            os.kill(os.getppid(), signal.SIGKILL)
            time.sleep(600)
    """)
    job_id = site.enqueue("poison", max_attempts=100)
    # It reaps every two seconds.
    site.worker("--processes", "1", "--queues", "none", "--heartbeat", "0.5s", LEASE_SECONDS="12")
    for crash in range(1, 4):
        victim = site.worker("--processes", "1")
        assert victim.wait() == -signal.SIGKILL
        site.expire_leases(job_id)
        site.wait(lambda crash=crash: site.job(job_id).crashes == crash, f"crash {crash} is charged")  # type: ignore[misc]
    job = site.job(job_id)
    assert (job.state, job.crashes, job.failures, job.attempt) == (State.FAILED, 3, 0, 3)
    assert (job.last_error or {})["code"] == "worker_lost"


# 7


def test_losing_redis_loses_no_job(postgres_url: str) -> None:
    with ValkeyServer() as valkey, Fleet(postgres_url, valkey.url, "holdfast") as fleet:
        fleet.enqueue(200)
        held = fleet.claim("slow", 20)
        with redis.Redis.from_url(valkey.url) as client:
            client.flushall()
        valkey.stop()
        fleet.store.enqueue_many([NewJob(task="add")] * 50)
        valkey.start()
        with fleet.working():
            fleet.store.settle([report(job) for job in held])
            wait_until(lambda: fleet.plain.counts() == {"succeeded": 250}, what="every job has ended")
    assert_verified(postgres_url)
    assert query(postgres_url, "SELECT count(*) FROM holdfast_events WHERE event = 'claimed'") == [(250,)]


# 8


def test_a_store_outage_causes_no_stampede(clock: MovableClock, store_url: str) -> None:
    store = clock.store
    store.enqueue_many([NewJob(task="add")] * 200)
    clock.advance(DEFAULT_PERIOD)
    reaped(store)
    running = store.claim("ann", 200)
    clock.advance(600)
    assert reaped(store) == [], "every lease has expired, and nobody could have renewed one"
    beats = [Beat(job.job_id, job.attempt, job.lease_token) for job in running]
    assert {answer.status for answer in store.heartbeat(beats)} == {Status.APPLIED}
    for _ in range(3):
        clock.advance(DEFAULT_PERIOD)
        assert reaped(store) == []
    assert {answer.status for answer in store.settle([report(job) for job in running])} == {Status.APPLIED}
    assert query(store_url, "SELECT count(*) FROM holdfast_events WHERE event = 'lease_lost'") == [(0,)]
    assert query(store_url, "SELECT max(attempt), max(crashes) FROM holdfast_jobs") == [(1, 0)]


# 9


def everything(url: str) -> dict[str, list[str]]:
    tables = [table.name for table in metadata.tables.values()]
    return {name: sorted(map(repr, query(url, f"SELECT * FROM {name}"))) for name in tables}


def test_a_refused_input_changes_nothing(store: SqlStore, store_url: str, tmp_path: Path) -> None:
    held = store.enqueue(NewJob(task="add", id="01a1e405-ab7c-7094-9240-184d98a75426")).id
    store.claim("ann")
    before = everything(store_url)
    holdfast = CommandLine(tmp_path, store_url)
    refused: list[Callable[[], object]] = [
        lambda: store.enqueue_many([NewJob(task="add"), NewJob(task="add", payload={"a": float("nan")})]),
        lambda: store.enqueue(NewJob(task="add", payload={"a": "x" * 300_000})),
        lambda: store.enqueue(NewJob(task="", payload={})),
        lambda: store.enqueue(NewJob(task="add", priority=101)),
        lambda: store.enqueue(NewJob(task="other", payload={"b": 1}, id=held)),
        lambda: store.set_source("shop", rate_limit_per_minute=-1),
        lambda: store.claim("ann", -1),
    ]
    for call in refused:
        with pytest.raises(HoldfastError):
            call()
    assert not store.requeue([held])[0].ok
    holdfast("enqueue", "add", "{not json").refused()
    holdfast("enqueue", "add", "{}", "--priority", "1000").refused()
    assert everything(store_url) == before


# 10


def test_everything_above_can_be_checked_afterwards_with_holdfast_verify(
    store: SqlStore, store_url: str, tmp_path: Path
) -> None:
    job_id = store.enqueue(NewJob(task="add")).id
    store.settle([report(job) for job in store.claim("ann")])
    holdfast = CommandLine(tmp_path, store_url)
    assert holdfast("verify", "--json").succeeded().document["ok"] is True
    tamper(store, job_id)
    [violation] = holdfast("verify", "--json").said_no().document["violations"]
    assert violation["job_id"] == job_id


def test_each_promise_has_a_test_of_its_name() -> None:
    """Those of docs/reliability.md, which are those of the design."""
    page = Path(__file__).parents[2] / "docs" / "reliability.md"
    named = re.findall(r"`(test_\w+)` \(tests/promises\)", page.read_text())
    assert named == [name for name in globals() if name.startswith("test_") and "each_promise" not in name]
