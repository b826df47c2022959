"""Claims under many limits: in order, to the last lane, with no more than they need locked, and with a word on when to
ask again."""

from collections.abc import Callable, Sequence
from datetime import timedelta
from random import Random
from types import SimpleNamespace
from typing import Any

import pytest

from holdfast.domain.events import Events
from holdfast.domain.job import ClaimedJobs, NewJob
from holdfast.domain.lifecycle import State
from holdfast.domain.manifest import Kind
from holdfast.domain.outcome import Report, Succeeded
from holdfast.stores.database import Row
from holdfast.stores.sql_store import SqlStore
from holdfast.stores.verbs import claim_named, claiming
from holdfast.stores.verbs.admitting import Admission, claim_admitted
from holdfast.stores.verbs.claiming import START, Governed, _checked, claim_rows
from holdfast.stores.verbs.looking import EXACT_LANES, Looking
from holdfast.worker.pickup import Found, Pickup, Room
from tests.contract.ground import ByHand, Clock, on_postgres, run
from tests.contract.steps import claim, claim_ids, enqueue, enqueue_many, settle_well, start
from tests.servers.waiting import wait_until


def open_sources(by_hand: ByHand, count: int) -> list[str]:
    """Governed, and with room for all."""
    names = [f"source-{number:04}" for number in range(count)]
    rows = ", ".join(f"('{name}', 1000, 60000, 1000, 1000)" for name in names)
    columns = "name, max_concurrent, rate_limit_per_minute, burst, bucket_level"
    by_hand(f"INSERT INTO holdfast_sources ({columns}) VALUES {rows}")
    return names


def enqueue_one_each(store: SqlStore, sources: list[str], **options: Any) -> list[str]:
    return [answer.id for answer in store.enqueue_many([NewJob(task="add", source=s, **options) for s in sources])]


def finish(store: SqlStore, claims: ClaimedJobs) -> None:
    store.settle([Report(job.job_id, job.attempt, job.lease_token, Succeeded()) for job in claims])


# Order


def test_order_across_governed_sources_is_strict(store: SqlStore, by_hand: ByHand) -> None:
    """However uneven they are: one has all the old jobs, the others a few each."""
    names = open_sources(by_hand, 10)
    old = enqueue_many(store, 60, source=names[7])
    mixed = [enqueue(store, source=names[number * 7 % 10]) for number in range(40)]
    taken: list[str] = []
    while batch := claim_ids(store, 9):
        taken += batch
    assert taken == old + mixed


def test_the_order_of_others_is_as_if_a_source_without_tokens_were_not_there(store: SqlStore, by_hand: ByHand) -> None:
    store.set_source("dry", rate_limit_per_minute=0.001)
    by_hand("UPDATE holdfast_sources SET bucket_level = 0")
    store.set_source("wide", max_concurrent=50)
    enqueue_many(store, 300, source="dry", priority=3)
    others = []
    for number in range(40):
        enqueue(store, source="dry")
        others.append(enqueue(store, source=("wide", "free", None)[number % 3]))
    assert claim_ids(store, 25) + claim_ids(store, 25) == others


def test_priority_is_strict_over_more_lanes_than_one_look_takes_in(store: SqlStore, by_hand: ByHand) -> None:
    names = open_sources(by_hand, 50)
    low = enqueue_one_each(store, names)
    high = enqueue_one_each(store, names, priority=5)
    taken = claim_ids(store, 30) + claim_ids(store, 20)
    assert sorted(taken) == sorted(high)
    assert sorted(claim_ids(store, 50)) == sorted(low)


# Many


def test_every_one_of_a_thousand_sources_is_served_and_a_closed_one_never(store: SqlStore, by_hand: ByHand) -> None:
    names = open_sources(by_hand, 1000)
    store.set_source("closed", enabled=False)
    enqueue_many(store, 300, source="closed", priority=1)
    jobs = enqueue_one_each(store, names)
    taken: list[str] = []
    for _ in range(10):
        claims = store.claim("ann", 100)
        assert len(claims) == 100, "a batch is full as long as there is work"
        finish(store, claims)
        taken += [job.job_id for job in claims]
    assert sorted(taken) == sorted(jobs)
    assert store.claim("ann", 100) == []


def test_backlogs_that_never_end_do_not_keep_a_claim_from_the_lanes_behind_them(
    store: SqlStore, by_hand: ByHand
) -> None:
    names = open_sources(by_hand, 60)
    store.enqueue_many([NewJob(task="add", source=name) for name in names[:30] for _ in range(5)])
    behind = set(enqueue_one_each(store, names[30:]))
    for _ in range(40):
        claims = store.claim("ann", 10)
        enqueue_one_each(store, [str(job.source) for job in claims if job.job_id not in behind])
        finish(store, claims)
        behind -= {job.job_id for job in claims}
    assert behind == set()


def test_many_lanes_without_any_limit_are_all_served(store: SqlStore) -> None:
    names = [f"task-{number:03}" for number in range(80)]
    jobs = [answer.id for answer in store.enqueue_many([NewJob(task=name) for name in names * 3])]
    taken: list[str] = []
    while batch := claim_ids(store, 20):
        taken += batch
    assert sorted(taken) == sorted(jobs)


def test_of_very_many_lanes_a_claim_takes_from_a_few(store: SqlStore, by_hand: ByHand) -> None:
    """Each of them costs a lock and a write. The first claim cannot know yet how many there are."""
    enqueue_one_each(store, open_sources(by_hand, 40) * 10)
    finish(store, store.claim("ann", 20))
    assert len({job.source for job in store.claim("ann", 20)}) <= 8


@pytest.mark.parametrize("count", [8, 9, 15, 16])
def test_across_sixteen_lanes_the_order_is_exact(store: SqlStore, by_hand: ByHand, count: int) -> None:
    names = open_sources(by_hand, count) * 6
    jobs = enqueue_one_each(store, Random(count).sample(names, len(names)))
    taken: list[str] = []
    while batch := claim_ids(store, 7):
        taken += batch
    assert taken == jobs


def test_the_order_is_exact_again_once_there_are_few_lanes(store: SqlStore, by_hand: ByHand) -> None:
    names = open_sources(by_hand, 40)
    enqueue_one_each(store, names[12:] * 3)
    waiting = enqueue_one_each(store, names[:12] * 20)
    taken: list[str] = []
    while len(taken) < 28 * 3:
        taken += [job for job in claim_ids(store, 10) if job not in waiting]
    left = [job for job in waiting if store.job(job).state is State.PENDING]
    for _ in range(16):
        left.remove(*claim_ids(store, 1))
    assert claim_ids(store, 40) == left[:40]


# Locks


@on_postgres
def test_a_claim_leaves_the_sources_that_it_does_not_take_to_others(
    store: SqlStore, by_hand: ByHand, open_again: Callable[[], SqlStore]
) -> None:
    names = open_sources(by_hand, 100)
    enqueue_one_each(store, names * 2)
    other = open_again()
    with store.database.transaction() as transaction:
        mine = Governed(_checked("ann", 20, None, None), START, EXACT_LANES)(transaction, b"secret" * 6)
        theirs = other.claim("bob", 20)
        assert len(mine) == len(theirs) == 20
        assert not {job.source for job in mine} & {job.source for job in theirs}


@on_postgres
def test_only_the_sources_and_queues_of_the_jobs_taken_are_locked(store: SqlStore, by_hand: ByHand) -> None:
    names = open_sources(by_hand, 50)
    for queue in ("a", "b"):
        store.limit_queue(queue, 10)
    enqueue_one_each(store, names, queue="a")
    enqueue_one_each(store, names, queue="b")
    with store.database.transaction() as transaction:
        claims = Governed(_checked("ann", 3, ("a", "b"), None), START, EXACT_LANES)(transaction, b"secret" * 6)
        free = by_hand("SELECT name FROM holdfast_sources FOR UPDATE SKIP LOCKED")
        queues = by_hand("SELECT name FROM holdfast_queues FOR UPDATE SKIP LOCKED")
    assert {job.source for job in claims} == set(names) - {name for (name,) in free}
    assert queues == [("b",)]


@on_postgres
def test_a_claim_whose_only_source_stays_locked_is_tried_again_and_then_empty(
    store: SqlStore, by_hand: ByHand, monkeypatch: pytest.MonkeyPatch
) -> None:
    store.set_source("shop", max_concurrent=1)
    waiting = enqueue(store, source="shop")
    pauses: list[float] = []
    with by_hand.engine.begin() as connection:
        run(connection, "SELECT 1 FROM holdfast_sources FOR UPDATE")
        monkeypatch.setattr(claiming, "time", SimpleNamespace(sleep=pauses.append))
        assert store.claim("ann", 1) == []
    assert pauses == [0.001 * 2**number for number in range(1, claiming.BUSY_TRIES)]
    assert claim_ids(store) == [waiting]
    assert len(pauses) == claiming.BUSY_TRIES - 1, "a source that is free is not waited for"


@on_postgres
def test_a_claim_that_finds_only_locked_sources_goes_on_behind_the_same_lane(
    store: SqlStore, by_hand: ByHand, monkeypatch: pytest.MonkeyPatch
) -> None:
    sources = open_sources(by_hand, 3 * EXACT_LANES)
    enqueue_one_each(store, sources)
    first = store.claim("ann", 4)
    lane = store._claiming._lane
    assert lane != START
    with by_hand.engine.begin() as connection:
        run(connection, "SELECT 1 FROM holdfast_sources FOR UPDATE")
        monkeypatch.setattr(claiming, "time", SimpleNamespace(sleep=lambda _seconds: None))
        assert store.claim("ann", 4) == []
        assert store._claiming._lane == lane
    second = store.claim("ann", 4)
    assert len({job.source for job in (*first, *second)}) == 8, "no lane has its turn twice"


# Limits that come between the look and the claim


def claim_while(store: SqlStore, limit: int, meanwhile: Callable[[], object]) -> list[str]:
    """A claim that looks, then this happens and is committed, and then it takes what it chose."""
    left = iter([meanwhile])

    def take(ids: Sequence[str], admitted: Admission) -> list[Row]:
        next(left, lambda: None)()
        return claim_rows(transaction, "ann", ids, b"secret" * 6, "", admitted)

    with store.database.transaction() as transaction:
        found, _ = claim_admitted(transaction, Looking(limit + 16, None, None), limit, take)
    return [row[0] for row in found]


@on_postgres
@pytest.mark.parametrize("known", [True, False], ids=["with a row", "without one"])
@pytest.mark.parametrize(
    ("limits", "let_in"),
    [
        ({"enabled": False}, 0),
        ({"paused_for": "1h", "enabled": True}, 0),
        ({"max_concurrent": 2}, 2),
        ({"rate_limit_per_minute": 1, "burst": 3}, 3),
        ({"breaker_threshold": 7}, 10),
    ],
    ids=["switched off", "paused", "a number", "a rate", "nothing that matters"],
)
def test_a_source_that_got_a_limit_after_the_look_keeps_to_it(
    store: SqlStore,
    by_hand: ByHand,
    open_again: Callable[[], SqlStore],
    known: bool,
    limits: dict[str, Any],
    let_in: int,
) -> None:
    if known:
        store.set_source("shop")
    jobs = enqueue_many(store, 10, source="shop")
    others = enqueue_many(store, 10)
    other = open_again()
    taken = claim_while(store, 10, lambda: other.set_source("shop", **limits))
    assert taken == (jobs if let_in == 10 else others), "what became limited is for the next claim, which locks it"
    by_hand("UPDATE holdfast_sources SET bucket_level = burst")
    assert claim_ids(store, 10) == (others if let_in == 10 else jobs[:let_in])


@on_postgres
@pytest.mark.parametrize("known", [True, False], ids=["with a row", "without one"])
@pytest.mark.parametrize(("most", "let_in"), [(0, 0), (2, 2)])
def test_a_queue_that_got_a_limit_after_the_look_keeps_to_it(
    store: SqlStore, open_again: Callable[[], SqlStore], known: bool, most: int, let_in: int
) -> None:
    if known:
        store.limit_queue("narrow", None)
    jobs = enqueue_many(store, 10, queue="narrow")
    other = open_again()
    assert claim_while(store, 10, lambda: other.limit_queue("narrow", most)) == []
    assert claim_ids(store, 10) == jobs[:let_in]


@on_postgres
def test_a_claim_by_id_keeps_to_a_limit_that_came_after_its_look(
    store: SqlStore, open_again: Callable[[], SqlStore], monkeypatch: pytest.MonkeyPatch
) -> None:
    store.set_source("shop")
    jobs = enqueue_many(store, 3, source="shop")
    other = open_again()

    def pause_and_take(*given: Any) -> list[Row]:
        other.set_source("shop", paused_for="1h")
        return claim_rows(*given)

    monkeypatch.setattr(claim_named, "claim_rows", pause_and_take)
    assert store.claim_jobs("ann", jobs) == []


# In use


def test_entries_that_jobs_made_themselves_count_as_long_as_these_run(store: SqlStore, by_hand: ByHand) -> None:
    store.set_source("shop", max_concurrent=1)
    inside = start(store)
    waiting = enqueue(store, source="shop")
    hold = "INSERT INTO holdfast_source_holds (job_id, attempt, number, source, own) VALUES (:id, :attempt, 1, 'shop', "
    by_hand(hold + "true)", id=inside.job_id, attempt=7)
    by_hand("UPDATE holdfast_source_holds SET own = false, attempt = 1")
    assert claim_ids(store) == []
    assert store.claim_job("bob", waiting) is None
    settle_well(store, inside, Succeeded())
    assert claim_ids(store) == [waiting]


@pytest.mark.parametrize("change", ["own = true", "attempt = 7", "source = 'bank'"])
def test_entries_that_do_not_count(store: SqlStore, by_hand: ByHand, change: str) -> None:
    store.set_source("shop", max_concurrent=1)
    inside = start(store)
    by_hand(
        "INSERT INTO holdfast_source_holds (job_id, attempt, number, source) VALUES (:id, 1, 1, 'shop')",
        id=inside.job_id,
    )
    by_hand(f"UPDATE holdfast_source_holds SET {change}")
    waiting = enqueue(store, source="shop")
    assert claim_ids(store) == [waiting]


# When to ask again


def test_a_claim_says_when_a_token_will_be_there(store: SqlStore, clock: Clock) -> None:
    store.set_source("shop", rate_limit_per_minute=60)
    enqueue_many(store, 3, source="shop")
    assert store.claim("ann", 1).again_in is None
    empty = store.claim("ann", 1)
    assert empty == []
    assert empty.again_in == pytest.approx(1.0)
    clock.move(0.75)
    assert store.claim("ann", 1).again_in == pytest.approx(0.25)
    clock.move(0.25)
    assert len(store.claim("ann", 1)) == 1


def test_a_claim_says_when_a_pause_is_over(store: SqlStore, clock: Clock) -> None:
    store.set_source("shop", paused_until=clock.now() + timedelta(seconds=30))
    store.set_source("bank", paused_until=clock.now() + timedelta(seconds=20), rate_limit_per_minute=60)
    enqueue(store, source="shop")
    assert store.claim("ann", 1).again_in == pytest.approx(30.0)
    enqueue(store, source="bank")
    assert store.claim("ann", 1).again_in == pytest.approx(20.0)


@pytest.mark.parametrize("wanted", [{"queues": ["default"]}, {}])
def test_a_claim_says_nothing_where_time_alone_changes_nothing(
    store: SqlStore, clock: Clock, wanted: dict[str, Any]
) -> None:
    store.set_source("off", enabled=False, paused_until=clock.now() + timedelta(seconds=30))
    store.set_source("full", max_concurrent=1)
    store.set_source("dry", rate_limit_per_minute=1)
    enqueue_many(store, 2, source="off")
    enqueue_many(store, 2, source="full")
    enqueue(store, source="dry")
    assert len(store.claim("ann", 10)) == 2
    enqueue(store, source="dry", delay=10)
    enqueue(store, "other", source="dry")
    assert store.claim("ann", 10, tasks=["add"], **wanted).again_in is None
    assert store.claim("ann", 10, tasks=["other"], **wanted).again_in == pytest.approx(60.0)
    assert store.claim("ann", 10, queues=["elsewhere"]).again_in is None


def test_a_claim_that_is_asked_for_again_says_it_too(store: SqlStore, clock: Clock) -> None:
    store.set_source("shop", rate_limit_per_minute=60)
    enqueue_many(store, 2, source="shop")
    claim(store)
    assert store.claim("ann", 1, request_id="request").again_in == pytest.approx(1.0)
    clock.move(1)
    assert len(store.claim("ann", 1, request_id="request")) == 1


def test_a_worker_waits_no_longer_than_for_the_next_token(store: SqlStore, clock: Clock) -> None:
    rooms = {Kind.SYNC: Room(["add"], slots=1, quick=[], ahead=0)}
    pickup = Pickup(lambda: store, "ann", None, 60.0, lambda: rooms, lambda *_: None, Events(), lambda: None)

    def wait_after_nothing() -> float:
        wait_until(lambda: pickup.poll(0.0) is Found.NOTHING, what="an empty answer")
        return pickup.next_wait()

    def is_drained() -> bool:
        return pickup.nothing_due

    store.set_source("shop", rate_limit_per_minute=60)
    enqueue_many(store, 2, source="shop")
    claim(store)
    waits = [wait_after_nothing() for _ in range(10)]
    assert waits[0] <= 0.1
    assert not is_drained(), "--drain is not over while a token is a second away"
    assert waits[-1] == pytest.approx(1.0), "and not the several seconds that it would wait for a job"
    clock.move(0.9999)
    assert wait_after_nothing() == pytest.approx(0.01), "but it does not go round in circles"
    store.set_source("shop", enabled=False)
    assert wait_after_nothing() > 1.0
    assert is_drained(), "but it is where only somebody else could open the source"
    pickup.close()


def test_a_job_for_later_is_not_due_in_any_lane(store: SqlStore, by_hand: ByHand) -> None:
    names = open_sources(by_hand, 40)
    later = [NewJob(task="add", source=name, delay=3600) for name in names]
    store.enqueue_many(later)
    due = enqueue(store, source=names[-1])
    assert claim_ids(store, 10) == [due]
