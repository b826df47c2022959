"""A store after three hours of ordinary trouble, made by the verbs alone: what docs/operator-sql.md is asked about.

Its clock starts three hours ago and arrives at about now, because the page's statements ask the database for the time.
"""

from __future__ import annotations

from dataclasses import dataclass, field

from holdfast.domain.answers import Beat
from holdfast.domain.job import Claimed
from holdfast.domain.lifecycle import State
from holdfast.domain.outcome import Failed, JobError, Outcome, Report, Succeeded, Usage
from holdfast.domain.record import NewRecord
from holdfast.domain.schedule import Declaration
from holdfast.domain.sources import Entry
from holdfast.domain.views import WorkerRow
from holdfast.stores.sql_store import SqlStore
from tests.contract.ground import Clock
from tests.contract.steps import EXACT, enqueue, enqueue_many, lose_lease, reap

TIMEOUT = Failed(JobError("timeout", "it took too long"))
BAD = Failed(JobError("bad_input", "it will never work", retryable=False))
REFUSED = Failed(JobError("http_500", "the shop is down"))


@dataclass
class Ground:
    store: SqlStore
    clock: Clock
    jobs: dict[str, str] = field(default_factory=dict)  # by what became of them

    def start(self, job_id: str, worker: str) -> Claimed:
        claimed = self.store.claim_job(worker, job_id)
        assert claimed is not None, self.store.job(job_id)
        return claimed

    def settle(self, claimed: Claimed, worker: str, outcome: Outcome, seconds: float = 2.0) -> None:
        self.clock.move(seconds)
        used = Usage(duration_ms=int(seconds * 1000))
        report = Report(claimed.job_id, claimed.attempt, claimed.lease_token, outcome, worker, used)
        [answer] = self.store.settle([report])
        assert answer.ok, answer

    def run(self, job_id: str, worker: str, outcome: Outcome, seconds: float = 2.0) -> None:
        self.settle(self.start(job_id, worker), worker, outcome, seconds)


def lay(store: SqlStore, clock: Clock) -> Ground:
    ground = Ground(store, clock)
    for seconds_ago, happen in ((10_800.0, _long_ago), (2_700.0, _within_the_hour), (600.0, _what_waits), (2.0, _now)):
        clock.hold()
        clock.move(-seconds_ago)
        happen(ground)
    return ground


def _long_ago(ground: Ground) -> None:
    """A report that is made again and again."""
    first, second = (enqueue(ground.store, "report", payload={"day": 1}) for _ in range(2))
    for job_id in (first, second):
        ground.run(job_id, "ann", Succeeded({"rows": 3}))
    replay = ground.store.replay(first).id
    ground.run(replay, "bob", Succeeded({"rows": 3}))
    ground.jobs |= {"reported": first, "reported again": second, "replayed": replay}


def _within_the_hour(ground: Ground) -> None:
    store = ground.store
    flaky = enqueue(store, "crawl", payload={"page": 1}, retry=EXACT)
    ground.run(flaky, "bob", TIMEOUT, seconds=30.0)
    ground.clock.move(10.0)
    ground.run(flaky, "ann", Succeeded(7), seconds=4.0)
    hopeless = enqueue(store, "crawl", payload={"page": 2})
    ground.run(hopeless, "bob", BAD, seconds=1.0)
    rescued = enqueue(store, "crawl", payload={"page": 3})
    lost = ground.start(rescued, "zed")
    lose_lease(store, ground.clock, lost)
    ground.clock.move(120.0)  # what a lost lease waits
    ground.run(rescued, "ann", Succeeded(9), seconds=3.0)
    late = Report(lost.job_id, lost.attempt, lost.lease_token, Succeeded(8), "zed")
    assert not store.settle([late])[0].ok
    ground.jobs |= {"flaky": flaky, "hopeless": hopeless, "rescued": rescued}


def _what_waits(ground: Ground) -> None:
    """Ten minutes ago, and nothing has moved since."""
    store = ground.store
    enqueue_many(store, 3, "mail", queue="mail")
    store.pause_queue("mail")
    store.set_source("shop", max_concurrent=2, breaker_threshold=2, breaker_pause_seconds=3_600.0)
    store.set_source("archive", enabled=False)
    store.set_source("market", rate_limit_per_minute=1.0, burst=5, max_concurrent=3)
    shopping = [
        enqueue(store, "buy", payload={"number": n}, source="shop", queue="shop", retry=EXACT) for n in range(4)
    ]
    for job_id in shopping[:2]:
        ground.run(job_id, "bob", REFUSED)
    enqueue(store, "dig", source="archive", queue="dig")
    enqueue(store, "backlog", queue="slow")
    abandoned = enqueue(store, "crawl", payload={"page": 4})
    ground.start(abandoned, "zed")
    ground.jobs |= {"abandoned": abandoned}
    store.add_schedule(Declaration(name="tidy", task="tidy_up", every_seconds=400.0))
    store.add_schedule(Declaration(name="yearly", task="tidy_up", cron="0 0 1 1 *"))
    reap(store)


def _now(ground: Ground) -> None:
    store = ground.store
    store.roll_up("ann")
    store.keep_worker(WorkerRow(id="ann", host="h", pid=1, state="idle", processes=1, slots=2, running=0))
    store.fire_schedules("ann")
    pricing = enqueue(store, "price", source="market", queue="price", lease_seconds=3_600.0)
    claimed = ground.start(pricing, "ann")
    visiting = enqueue(store, "visit", queue="price", lease_seconds=3_600.0)
    visitor = ground.start(visiting, "ann")
    lease = Beat(visitor.job_id, visitor.attempt, visitor.lease_token, "ann")
    assert store.enter_source(lease, Entry("market", 1)).admitted
    later = enqueue(store, "price", payload={"later": True}, source="market", queue="price", delay="1h")
    ground.jobs |= {"pricing": pricing, "visiting": visiting, "later": later}
    _records(ground, claimed, lease)
    store.keep_cached("market", "a", {"price": 1}, 3_600.0)
    store.keep_cached("market", "b", {"price": 2}, 3_600.0)
    store.keep_cached("shop", "c", {"price": 3}, 0.001)
    assert store.job(pricing).state is State.RUNNING


def _records(ground: Ground, strong: Claimed, weak: Beat) -> None:
    key = "hash_0123456789abcdef"
    guess = NewRecord(scope="coin-1", source="market", dedupe_key=key, data={"price": 9}, strength=0.5)
    ground.store.write_records([guess], weak)
    ground.clock.move(1.0)
    better = NewRecord(scope="coin-1", source="market", dedupe_key=key, data={"price": 10}, strength=0.9)
    ground.store.write_records([better], Beat(strong.job_id, strong.attempt, strong.lease_token, "ann"))
    elsewhere = NewRecord(scope="coin-1", source="shop", dedupe_key=key, data={"price": 11}, strength=0.1)
    ground.store.write_records([elsewhere])
