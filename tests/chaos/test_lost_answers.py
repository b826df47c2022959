"""The database has committed, and the answer got lost on the way: whoever asks again is told what was done."""

from collections.abc import Iterator

import pytest

from holdfast.domain.answers import Beat, Operated, Status
from holdfast.domain.errors import StoreUnavailable
from holdfast.domain.job import Claimed, NewJob
from holdfast.domain.lifecycle import State
from holdfast.domain.outcome import Failed, JobError, Outcome, Released, Report, Succeeded
from holdfast.stores.sql_store import SqlStore
from tests.chaos.databases import assert_verified, opened, query
from tests.chaos.proxy import ForgetfulProxy

JOB_ID = "0199a2b0-0000-7000-8000-000000000001"
WRITES = b"UPDATE holdfast_jobs"
CLAIMS = b"holdfast_claim("
SUCCEEDS = b"holdfast_succeed("
COMMITS = b"COMMIT\0"
COPY_IS_DONE = b"c\0\0\0\4"
EVENTS = "SELECT event FROM holdfast_events ORDER BY seq"


@pytest.fixture
def proxy(postgres_url: str) -> Iterator[ForgetfulProxy]:
    with ForgetfulProxy(postgres_url) as proxy:
        yield proxy
        assert proxy.lost == 1


@pytest.fixture
def store(proxy: ForgetfulProxy) -> Iterator[SqlStore]:
    with opened(proxy.url) as store:
        yield store


@pytest.fixture
def lease(postgres_store: SqlStore) -> Claimed:
    postgres_store.enqueue(NewJob(task="work", id=JOB_ID))
    [lease] = postgres_store.claim("worker", 1)
    return lease


def events(url: str) -> list[str]:
    return [event for (event,) in query(url, EVENTS)]


@pytest.mark.parametrize(
    ("outcome", "answer_to", "event"),
    [
        pytest.param(Succeeded({"n": 1}), SUCCEEDS, "succeeded", id="success"),
        pytest.param(Failed(JobError("flaky", "try again")), COMMITS, "retry_scheduled", id="failure"),
        pytest.param(Released(), COMMITS, "released", id="release"),
    ],
)
def test_report_that_was_applied_is_replayed(
    outcome: Outcome,
    answer_to: bytes,
    event: str,
    lease: Claimed,
    store: SqlStore,
    proxy: ForgetfulProxy,
    postgres_url: str,
) -> None:
    report = Report(lease.job_id, lease.attempt, lease.lease_token, outcome, "worker")
    proxy.lose_answer_to(answer_to)
    with pytest.raises(StoreUnavailable):
        store.settle([report])
    assert events(postgres_url) == ["enqueued", "claimed", event]
    [again] = store.settle([report])
    assert (again.status, again.event) == (Status.REPLAYED, event)
    assert events(postgres_url) == ["enqueued", "claimed", event]
    assert store.refusals() == []
    assert_verified(postgres_url)


def test_heartbeat_may_be_sent_again(lease: Claimed, store: SqlStore, proxy: ForgetfulProxy) -> None:
    beat = Beat(lease.job_id, lease.attempt, lease.lease_token)
    proxy.lose_answer_to(WRITES)
    with pytest.raises(StoreUnavailable):
        store.heartbeat([beat])
    assert store.job(JOB_ID).heartbeat_at is not None
    assert [answer.status for answer in store.heartbeat([beat])] == [Status.APPLIED]


def test_enqueue_under_an_id_of_ones_own_makes_one_job(
    store: SqlStore, proxy: ForgetfulProxy, postgres_url: str
) -> None:
    job = NewJob(task="work", id=JOB_ID)
    proxy.lose_answer_to(COMMITS)
    again = store.enqueue(job)
    assert (again.id, again.created) == (JOB_ID, False)
    assert events(postgres_url) == ["enqueued"]


@pytest.mark.parametrize(
    ("jobs", "answer_to"),
    [
        pytest.param([NewJob(task="work")], b"INSERT INTO holdfast_jobs", id="one"),
        pytest.param([NewJob(task="work", unique_key="k", reuse_seconds=60)], COMMITS, id="one with a key"),
        pytest.param([NewJob(task="work"), NewJob(task="work", unique_key="k")], COMMITS, id="some"),
        pytest.param([NewJob(task="work", payload={"n": n}) for n in range(300)], COPY_IS_DONE, id="many by COPY"),
    ],
)
def test_enqueue_whose_answer_is_lost_is_repeated_once(
    jobs: list[NewJob], answer_to: bytes, store: SqlStore, proxy: ForgetfulProxy, postgres_url: str
) -> None:
    proxy.lose_answer_to(answer_to)
    answers = store.enqueue_many(jobs)
    assert all(answer.created for answer in answers)
    stored = {job_id for (job_id,) in query(postgres_url, "SELECT id::text FROM holdfast_jobs")}
    assert stored == {answer.id for answer in answers}
    assert len(stored) == len(jobs)
    assert_verified(postgres_url)


def test_claim_that_nobody_heard_of_is_held_by_nobody_else_and_reaped_in_time(
    store: SqlStore, postgres_store: SqlStore, proxy: ForgetfulProxy, postgres_url: str
) -> None:
    postgres_store.enqueue(NewJob(task="work", id=JOB_ID))
    proxy.lose_answer_to(CLAIMS)
    with pytest.raises(StoreUnavailable):
        store.claim("worker", 1)
    assert store.job(JOB_ID).state is State.RUNNING
    assert store.claim("worker", 1) == []
    assert store.reap("reaper", period=0).settled == ()
    query(postgres_url, "UPDATE holdfast_jobs SET lease_expires_at = clock_timestamp() - interval '1 s'")
    assert [settled.job_id for settled in store.reap("reaper", period=0).settled] == [JOB_ID]
    [again] = store.claim("worker", 1)
    assert again.attempt == 2
    assert_verified(postgres_url)


def test_cancel_may_be_sent_again(
    store: SqlStore, postgres_store: SqlStore, proxy: ForgetfulProxy, postgres_url: str
) -> None:
    postgres_store.enqueue(NewJob(task="work", id=JOB_ID))
    proxy.lose_answer_to(WRITES)
    with pytest.raises(StoreUnavailable):
        store.cancel([JOB_ID])
    assert [answer.did for answer in store.cancel([JOB_ID])] == [Operated.CANCELLED]
    assert events(postgres_url) == ["enqueued", "cancelled"]


def test_a_claim_whose_answer_is_lost_can_be_found_again(proxy: ForgetfulProxy, store: SqlStore) -> None:
    jobs = {answer.id for answer in store.enqueue_many([NewJob(task="x") for _ in range(3)])}
    assert store.recover("worker-1") == []
    proxy.lose_answer_to(CLAIMS)
    with pytest.raises(StoreUnavailable):
        store.claim("worker-1", 3)
    found = store.recover("worker-1")
    assert {job.job_id for job in found} == jobs
    reports = [Report(job.job_id, job.attempt, job.lease_token, Released()) for job in found]
    assert all(answer.ok for answer in store.settle(reports))
    assert store.recover("worker-1") == []
    assert len(store.claim("worker-1", 3)) == 3
