"""Claims that can be asked for again, leases that belong to a credential, and many jobs claimed by their ids."""

import threading
from contextlib import suppress

import psycopg
import pytest

from holdfast.domain.answers import Beat, Reason, Status
from holdfast.domain.digests import request_digest
from holdfast.domain.errors import InvalidInput, RequestBusy
from holdfast.domain.job import Claimed
from holdfast.domain.lifecycle import State
from holdfast.domain.outcome import Report, Succeeded
from holdfast.stores.postgres_url import libpq_url
from holdfast.stores.sql_store import SqlStore
from holdfast.stores.verbs.claim_requests import Request
from tests.contract.ground import ByHand, Clock, on_postgres
from tests.contract.steps import enqueue, enqueue_many, history, postgres_later, settle_well
from tests.servers.waiting import wait_until


def again(store: SqlStore, credential: str = "c1", request_id: str = "r1", limit: int = 2) -> list[Claimed]:
    return store.claim("ann", limit, credential=credential, request_id=request_id)


def report(job: Claimed, credential: str) -> Report:
    return Report(job.job_id, job.attempt, job.lease_token, Succeeded(), "ann", credential=credential)


def test_the_same_request_gets_the_same_leases(store: SqlStore) -> None:
    enqueue_many(store, 5)
    first = again(store)
    assert len(first) == 2
    assert again(store) == first
    assert store.claim_again("c1", "r1") == first
    assert store.counts()["running"] == 2
    assert [job.attempt for job in first] == [1, 1]


def test_another_request_and_another_credential_get_others(store: SqlStore) -> None:
    enqueue_many(store, 6)
    claimed = [*again(store), *again(store, request_id="r2"), *again(store, credential="c2")]
    assert len({job.job_id for job in claimed}) == 6
    assert len({job.lease_token for job in claimed}) == 6


def test_leases_are_renewed_when_asked_for_again(store: SqlStore, clock: Clock) -> None:
    enqueue(store)
    (job,) = again(store)
    before = store.job(job.job_id).lease_expires_at
    clock.move(30)
    assert again(store) == [job]
    after = store.job(job.job_id).lease_expires_at
    assert before is not None
    assert after is not None
    assert (after - before).total_seconds() == pytest.approx(30, abs=1)


def test_only_what_is_still_held_is_given_again(store: SqlStore, clock: Clock) -> None:
    enqueue_many(store, 3)
    done, kept = again(store)
    store.settle([report(done, "c1")])
    assert again(store) == [kept]
    clock.move(61)
    taken = store.claim_job("bob", kept.job_id)
    assert taken is not None
    assert again(store) == []
    assert store.refusals(kept.job_id) == []


def test_an_empty_answer_is_not_remembered(store: SqlStore, by_hand: ByHand) -> None:
    assert again(store) == []
    assert store.claim_again("c1", "r1") is None
    assert by_hand("SELECT 1 FROM holdfast_claim_requests") == []
    enqueue(store)
    assert len(again(store)) == 1


def test_requests_that_were_granted_something_are_known(store: SqlStore) -> None:
    enqueue(store)
    assert len(again(store)) == 1
    assert again(store, request_id="r2") == []
    assert store.known_requests([("c1", "r1"), ("c1", "r2"), ("c2", "r1")]) == {("c1", "r1")}


@postgres_later
def test_without_requests_none_is_known_and_nothing_is_read(store: SqlStore, monkeypatch: pytest.MonkeyPatch) -> None:
    with monkeypatch.context() as without:
        without.setattr(store.database, "reading", None)
        assert store.known_requests([]) == set()


def test_two_at_once_with_one_request_share_one_answer(store: SqlStore) -> None:
    enqueue_many(store, 8)
    answers: list[list[Claimed]] = []
    start = threading.Barrier(4)

    def is_answered() -> bool:
        with suppress(RequestBusy):
            answers.append(again(store))
            return True
        return False

    def ask() -> None:
        start.wait()
        wait_until(is_answered, what="an answer to the request")

    threads = [threading.Thread(target=ask) for _ in range(4)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert len(answers) == 4
    assert all(answer == answers[0] for answer in answers)
    assert store.counts()["running"] == 2


@on_postgres
@pytest.mark.parametrize("how", ["claims", "writes"])
def test_a_request_that_hangs_elsewhere_is_busy_and_holds_no_job(store: SqlStore, direct_url: str, how: str) -> None:
    """Another process was stopped in the middle of its transaction, while it claimed or while it wrote the grant."""
    enqueue(store)
    with psycopg.connect(libpq_url(direct_url)) as stuck:
        if how == "claims":
            stuck.execute("SELECT pg_advisory_xact_lock(%s)", (Request("c1", "r1", "").lock,))
        else:
            stuck.execute(
                "INSERT INTO holdfast_claim_requests (credential, request, nonce, jobs, at)"
                " VALUES ('c1', %s, 'n', '[]', now())",
                (request_digest("r1"),),
            )
        stuck.execute("SET LOCAL idle_in_transaction_session_timeout = '60s'")
        with pytest.raises(RequestBusy, match="ask again"):
            again(store)
        assert store.counts()["pending"] == 1
        assert len(again(store, request_id="r2")) == 1, "it is of that request alone"


def test_neither_the_request_nor_a_token_is_stored(store: SqlStore, by_hand: ByHand) -> None:
    enqueue(store)
    (job,) = again(store, request_id="a-request-id")
    stored = str(by_hand("SELECT * FROM holdfast_claim_requests"))
    assert "a-request-id" not in stored
    assert job.lease_token not in stored


def test_what_is_old_is_forgotten(store: SqlStore, clock: Clock, by_hand: ByHand) -> None:
    enqueue_many(store, 4)
    again(store)
    clock.move(50)
    again(store, request_id="r2")
    clock.move(20)
    assert store.forget_claim_requests(60, 100) == 1
    assert len(by_hand("SELECT 1 FROM holdfast_claim_requests")) == 1
    assert store.forget_claim_requests(60, 100) == 0


@pytest.mark.parametrize("request_id", ["", "a\nb", "x" * 201])
def test_a_request_id_that_cannot_be_one(store: SqlStore, request_id: str) -> None:
    enqueue(store)
    with pytest.raises(InvalidInput, match="request_id"):
        again(store, request_id=request_id)
    assert store.counts()["pending"] == 1


@pytest.mark.parametrize("other", ["", "c2", "c", "1"])
def test_a_lease_is_of_no_use_to_another_credential(store: SqlStore, other: str) -> None:
    enqueue(store)
    (job,) = store.claim("ann", credential="c1")
    (beaten,) = store.heartbeat([Beat(job.job_id, job.attempt, job.lease_token, "ann", credential=other)])
    assert (beaten.status, beaten.reason) == (Status.REFUSED, Reason.UNKNOWN_LEASE)
    (settled,) = store.settle([report(job, other)])
    assert (settled.status, settled.reason) == (Status.REFUSED, Reason.UNKNOWN_LEASE)
    assert history(store, job.job_id) == ["enqueued", "claimed"]
    assert {refusal.verb for refusal in store.refusals(job.job_id)} == {"heartbeat", "complete"}
    (settled,) = store.settle([report(job, "c1")])
    assert settled.state is State.SUCCEEDED
    (replayed,) = store.settle([report(job, "c1")])
    assert replayed.status is Status.REPLAYED


def test_many_are_claimed_by_id_in_the_given_order(store: SqlStore) -> None:
    ids = enqueue_many(store, 4)
    held = store.claim_job("bob", ids[2])
    assert held is not None
    messages = {ids[3]: "5-0", ids[0]: "2-0"}
    claimed = store.claim_jobs("ann", [ids[3], ids[2], ids[0], ids[3]], messages=messages)
    assert [(job.job_id, job.message_id) for job in claimed] == [(ids[3], "5-0"), (ids[0], "2-0")]
    for job in claimed:
        settle_well(store, job, Succeeded())


def test_by_id_and_by_request_the_messages_are_given_again(store: SqlStore) -> None:
    ids = enqueue_many(store, 2)
    first = store.claim_jobs("ann", ids, credential="c1", request_id="r1", messages={ids[0]: "1-0", ids[1]: "2-0"})
    assert [job.message_id for job in first] == ["1-0", "2-0"]
    assert store.claim_again("c1", "r1") == first


def test_by_id_a_limit_counts_those_before(store: SqlStore) -> None:
    store.limit_queue("default", 2)
    store.set_source("shop", max_concurrent=1)
    shop = [enqueue(store, source="shop", queue="other") for _ in range(3)]
    ids = enqueue_many(store, 4)
    assert len(store.claim_jobs("ann", [*shop, *ids])) == 3
    assert store.claim_jobs("ann", [*shop, *ids]) == []
