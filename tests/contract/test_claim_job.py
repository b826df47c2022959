"""Claim one job by its id, as a message names it. There is no steal: an expired lease is reaped first."""

from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import Any

import pytest

from holdfast.domain.answers import Status
from holdfast.domain.lifecycle import TERMINAL, State
from holdfast.domain.outcome import Succeeded
from holdfast.domain.timing import choose
from holdfast.stores.sql_store import SqlStore
from holdfast.stores.verbs import claim_named
from holdfast.worker.one_job import Errand, OneJobStore
from tests.contract.ground import ByHand, Clock, on_postgres
from tests.contract.steps import (
    BROKEN,
    claim_this,
    enqueue,
    history,
    job_in,
    lose_lease,
    reap,
    settle,
    settle_well,
    start,
)

UNKNOWN = "01890a5d-ac96-774b-bcce-b302099a8057"


def test_a_pending_job_is_claimed(store: SqlStore) -> None:
    job_id = enqueue(store, priority=-100)
    enqueue(store, priority=100)
    claimed = store.claim_job("ann", job_id.upper())
    assert claimed is not None
    assert (claimed.job_id, claimed.attempt) == (job_id, 1)
    assert settle_well(store, claimed, Succeeded()).state is State.SUCCEEDED


def test_a_job_that_is_not_due_is_not(store: SqlStore, clock: Clock) -> None:
    job_id = enqueue(store, delay=60)
    assert store.claim_job("ann", job_id) is None
    clock.move(60)
    assert store.claim_job("ann", job_id) is not None


def test_a_due_retry_is_claimed(store: SqlStore, clock: Clock) -> None:
    job_id = job_in(store, State.RETRYABLE)
    assert store.claim_job("ann", job_id) is None
    clock.move(13)
    assert claim_this(store, job_id).attempt == 2


def test_a_job_under_a_live_lease_is_not(store: SqlStore, clock: Clock) -> None:
    claimed = start(store)
    clock.move(59)
    assert store.claim_job("bob", claimed.job_id) is None
    assert history(store, claimed.job_id) == ["enqueued", "claimed"]
    assert store.job(claimed.job_id).lease_owner == "ann"


def test_an_expired_lease_is_reaped_and_then_claimed_in_two_recorded_steps(store: SqlStore, clock: Clock) -> None:
    first = start(store)
    clock.move(60.001)
    second = claim_this(store, first.job_id, "bob")
    assert (second.attempt, second.crashes) == (2, 1)
    assert second.lease_token != first.lease_token
    lost, claimed = store.events(first.job_id)[-2:]
    assert (lost.event, lost.from_state, lost.to_state, lost.attempt) == ("lease_lost", "running", "pending", 1)
    assert (claimed.event, claimed.from_state, claimed.to_state) == ("claimed", "pending", "running")
    assert (lost.seq, claimed.seq, lost.worker, claimed.worker) == (3, 4, "ann", "bob")
    assert settle(store, first, Succeeded()).status is Status.REFUSED
    assert settle_well(store, second, Succeeded()).state is State.SUCCEEDED


def test_the_second_lease_lost_waits_for_its_backoff(store: SqlStore, clock: Clock) -> None:
    job_id = start(store, max_attempts=10, max_crashes=10).job_id
    clock.move(61)
    claim_this(store, job_id, "bob")
    clock.move(61)
    assert store.claim_job("cat", job_id) is None, "reaped, and due only after the backoff"
    assert history(store, job_id)[-1] == "lease_lost"
    assert store.job(job_id).crashes == 2
    clock.move(12.1)
    assert claim_this(store, job_id, "cat").attempt == 3


@pytest.mark.parametrize("state", TERMINAL)
def test_a_finished_job_is_not_claimed(store: SqlStore, clock: Clock, state: State) -> None:
    job_id = job_in(store, state)
    before = store.job(job_id)
    clock.move(1_000)
    assert store.claim_job("ann", job_id) is None
    assert store.job(job_id) == before


def test_a_job_whose_budget_is_gone_is_dead_lettered_instead(store: SqlStore, clock: Clock) -> None:
    claimed = start(store, max_crashes=1)
    clock.move(61)
    assert store.claim_job("bob", claimed.job_id) is None
    job = store.job(claimed.job_id)
    assert (job.state, job.crashes) == (State.FAILED, 1)
    assert job.last_error is not None
    assert job.last_error["code"] == "worker_lost"
    assert history(store, claimed.job_id) == ["enqueued", "claimed", "failed"]


def test_a_job_whose_cancel_was_requested_is_cancelled_instead(store: SqlStore, clock: Clock) -> None:
    claimed = start(store)
    store.cancel([claimed.job_id])
    clock.move(61)
    assert store.claim_job("bob", claimed.job_id) is None
    assert store.job(claimed.job_id).state is State.CANCELLED


def test_a_job_in_a_paused_queue_is_not_claimed(store: SqlStore) -> None:
    job_id = enqueue(store)
    store.pause_queue("default")
    assert store.claim_job("ann", job_id) is None
    store.resume_queue("default")
    assert store.claim_job("ann", job_id) is not None


def test_a_job_of_a_closed_source_is_not_claimed(store: SqlStore) -> None:
    store.set_source("shop", enabled=False)
    job_id = enqueue(store, source="shop")
    assert store.claim_job("ann", job_id) is None
    assert history(store, job_id) == ["enqueued"]


def test_a_job_that_nobody_knows_is_not_claimed(store: SqlStore, by_hand: ByHand) -> None:
    assert store.claim_job("ann", UNKNOWN) is None
    assert by_hand.count("holdfast_refusals") == 0


def test_a_pruned_job_is_not_claimed(store: SqlStore, by_hand: ByHand) -> None:
    job_id = job_in(store, State.SUCCEEDED)
    by_hand("DELETE FROM holdfast_jobs")
    assert store.claim_job("ann", job_id) is None


def test_the_grace_after_an_outage_holds_for_it_too(store: SqlStore, clock: Clock) -> None:
    reap(store)
    claimed = start(store, lease_seconds=60)
    clock.move(300)
    reap(store)  # notices that everybody was away
    clock.move(30)
    reap(store)
    clock.move(29)
    assert store.claim_job("bob", claimed.job_id) is None
    assert store.job(claimed.job_id).crashes == 0
    clock.move(1.001)
    assert claim_this(store, claimed.job_id, "bob").attempt == 2


def test_an_outage_that_no_reaper_has_noticed_yet_is_an_outage(store: SqlStore, clock: Clock) -> None:
    """A message may come before the reaper's first tick; the worker that was cut off is about to release."""
    reap(store)
    claimed = start(store, lease_seconds=60)
    clock.move(300)
    assert store.claim_job("bob", claimed.job_id) is None
    assert history(store, claimed.job_id) == ["enqueued", "claimed"]
    assert settle_well(store, claimed, Succeeded()).state is State.SUCCEEDED


@pytest.mark.parametrize("every", [10, 45, 100])
def test_a_reaper_that_never_comes_back_is_not_an_outage_for_ever(store: SqlStore, clock: Clock, every: int) -> None:
    """Messages alone must bring an expired job back, one lease after the first of them noticed."""
    reap(store)
    claimed = start(store, lease_seconds=60)
    clock.move(1_000)
    waited = 0
    while store.claim_job("bob", claimed.job_id) is None:
        assert waited <= 60 + every, "one lease and one message later it is nobody's any more"
        clock.move(every)
        waited += every
    assert waited >= 60


def test_the_count_of_its_failures_is_kept(store: SqlStore, clock: Clock) -> None:
    first = start(store, max_attempts=3)
    settle_well(store, first, BROKEN)
    clock.move(13)
    second = claim_this(store, first.job_id)
    lose_lease(store, clock, second)
    third = claim_this(store, first.job_id)
    clock.move(10)
    assert settle_well(store, third, BROKEN).state is State.FAILED
    job = store.job(first.job_id)
    assert (job.failures, job.crashes, job.attempt) == (2, 1, 3)


# Limits that somebody else has locked


@contextmanager
def locked(by_hand: ByHand, table: str, name: str) -> Iterator[Callable[..., None]]:
    """Somebody has this row; to be let go by what is given."""
    with by_hand.engine.connect() as somebody:
        somebody.exec_driver_sql(f"SELECT 1 FROM {table} WHERE name = '{name}' FOR UPDATE")
        yield lambda *_: somebody.rollback()


@on_postgres
@pytest.mark.parametrize("request_id", [None, "request"])
@pytest.mark.parametrize(("table", "name"), [("holdfast_sources", "shop"), ("holdfast_queues", "narrow")])
def test_a_limit_that_is_locked_for_a_moment_refuses_nobody(
    store: SqlStore, by_hand: ByHand, monkeypatch: pytest.MonkeyPatch, table: str, name: str, request_id: str | None
) -> None:
    store.set_source("shop", max_concurrent=5)
    store.limit_queue("narrow", 5)
    ids = [enqueue(store), enqueue(store, source="shop", queue="narrow"), enqueue(store, source="shop")]
    with locked(by_hand, table, name) as let_go:
        monkeypatch.setattr(claim_named, "pause", let_go)
        claims = store.claim_jobs("ann", ids, request_id=request_id)
    assert [job.job_id for job in claims] == ids
    assert claims.again_in is None


@on_postgres
def test_a_limit_that_stays_locked_leaves_the_others_to_be_had(
    store: SqlStore, by_hand: ByHand, monkeypatch: pytest.MonkeyPatch
) -> None:
    store.set_source("shop", max_concurrent=5)
    ids = [enqueue(store, source="shop"), enqueue(store)]
    monkeypatch.setattr(claim_named, "PAUSES", (0.001, 0.001))
    with locked(by_hand, "holdfast_sources", "shop"):
        claims = store.claim_jobs("ann", ids)
    assert [job.job_id for job in claims] == ids[1:]
    assert claims.again_in is not None, "to ask again may help"
    assert history(store, ids[0]) == ["enqueued"]


@on_postgres
def test_a_worker_for_one_job_asks_once_more_and_then_says_that_others_were_busy(
    store: SqlStore, by_hand: ByHand, monkeypatch: pytest.MonkeyPatch
) -> None:
    store.set_source("shop", max_concurrent=5)
    job_id = enqueue(store, source="shop")

    def ask() -> tuple[int, str | None]:
        errand = Errand(job_id)
        claims = OneJobStore(store, errand, choose(60.0)).claim("ann", 1, None, ("add",))
        return len(claims), errand.why_not

    monkeypatch.setattr(claim_named, "PAUSES", (0.001,))
    with locked(by_hand, "holdfast_sources", "shop") as let_go:
        assert ask() == (0, "others were busy with its source or queue all the while; ask again")
        pauses = iter([lambda *_: None, let_go])
        monkeypatch.setattr(claim_named, "pause", lambda _: next(pauses)())
        assert ask() == (1, None)
    assert ask() == (0, "another worker holds it")


@pytest.mark.parametrize(
    "closed",
    [{"enabled": False}, {"paused_for": "1h", "enabled": True}, {"max_concurrent": 0}, {"rate_limit_per_minute": 1}],
)
def test_a_closed_source_is_not_waited_for(
    store: SqlStore, by_hand: ByHand, monkeypatch: pytest.MonkeyPatch, closed: dict[str, Any]
) -> None:
    store.set_source("shop", **closed)
    by_hand("UPDATE holdfast_sources SET bucket_level = 0")
    store.limit_queue("shut", 0)
    store.pause_queue("resting")
    ids = [enqueue(store, source="shop"), enqueue(store, queue="shut"), enqueue(store, queue="resting")]
    monkeypatch.setattr(claim_named, "pause", lambda _: pytest.fail("there is nothing to wait for"))
    claims = store.claim_jobs("ann", ids)
    assert (claims, claims.again_in) == ([], None)
