"""A job that names a webhook leaves a delivery job behind when it ends: once for every end, in the same transaction."""

from collections.abc import Callable
from typing import Any

import pytest
from sqlalchemy.exc import IntegrityError

from holdfast.domain.errors import InvalidInput
from holdfast.domain.job import Job
from holdfast.domain.lifecycle import State
from holdfast.domain.outcome import Cancelled, Failed, JobError, Outcome, Released, Snoozed, Succeeded
from holdfast.domain.webhook import DELIVERY_ATTEMPTS, DELIVERY_QUEUE, DELIVERY_TASK, LONGEST_RESULT_BYTES
from holdfast.stores.sql_store import SqlStore
from tests.contract.ground import ByHand, Clock, on_postgres
from tests.contract.steps import (
    BROKEN,
    HOPELESS,
    KILLED,
    claim_this,
    enqueue,
    enqueue_many,
    history,
    lose_lease,
    new,
    reap,
    report,
    settle_well,
    start,
)
from tests.contract.test_user_transaction import POSTGRES_ONLY

URL = "https://receiver.example/hooks?a=1"
EVERY_END = {"url": URL, "on": ["succeeded", "failed", "cancelled"]}
Door = Callable[[SqlStore, ByHand, Clock], str]


def deliveries(store: SqlStore) -> list[Job]:
    """The oldest first."""
    return list(reversed(store.jobs(task=DELIVERY_TASK, limit=100).items))


def told(job: Job) -> tuple[str, str]:
    """Whom a delivery tells of, and what."""
    assert job.payload["event"] == f"job.{job.payload['job']['state']}"
    return job.payload["job"]["id"], job.payload["job"]["state"]


def by_outcome(outcome: Outcome, **options: Any) -> Door:
    def end(store: SqlStore, _by_hand: ByHand, _clock: Clock) -> str:
        claimed = start(store, webhook=EVERY_END, **options)
        settle_well(store, claimed, outcome)
        return claimed.job_id

    return end


def by_cancel(store: SqlStore, _by_hand: ByHand, _clock: Clock) -> str:
    job_id = enqueue(store, webhook=EVERY_END)
    store.cancel([job_id])
    return job_id


def by_cancel_while_it_runs(store: SqlStore, _by_hand: ByHand, _clock: Clock) -> str:
    claimed = start(store, webhook=EVERY_END)
    store.cancel([claimed.job_id])
    assert deliveries(store) == [], "it still runs"
    settle_well(store, claimed, Released())
    return claimed.job_id


def by_reaper(store: SqlStore, _by_hand: ByHand, clock: Clock) -> str:
    reap(store)
    claimed = start(store, webhook=EVERY_END, max_crashes=1)
    lose_lease(store, clock, claimed)
    return claimed.job_id


def by_reaper_after_a_cancel(store: SqlStore, _by_hand: ByHand, clock: Clock) -> str:
    reap(store)
    claimed = start(store, webhook=EVERY_END)
    store.cancel([claimed.job_id])
    lose_lease(store, clock, claimed)
    return claimed.job_id


def by_hand_typed(store: SqlStore, by_hand: ByHand, _clock: Clock) -> str:
    job_id = start(store, webhook=EVERY_END).job_id
    by_hand("UPDATE holdfast_jobs SET state = 'succeeded' WHERE id = :id", id=job_id)
    return job_id


DOORS: dict[str, tuple[Door, State]] = {
    "success": (by_outcome(Succeeded({"sum": 3})), State.SUCCEEDED),
    "permanent failure": (by_outcome(HOPELESS), State.FAILED),
    "last attempt": (by_outcome(BROKEN, max_attempts=1), State.FAILED),
    "last crash": (by_outcome(KILLED, max_crashes=1), State.FAILED),
    "cancelled itself": (by_outcome(Cancelled("no longer wanted")), State.CANCELLED),
    "cancel": (by_cancel, State.CANCELLED),
    "cancel while it runs": (by_cancel_while_it_runs, State.CANCELLED),
    "reaper": (by_reaper, State.FAILED),
    "reaper after a cancel": (by_reaper_after_a_cancel, State.CANCELLED),
    "by hand": (by_hand_typed, State.SUCCEEDED),
}


@pytest.mark.parametrize("door", DOORS)
def test_whichever_way_a_job_ends_one_delivery_is_enqueued(
    store: SqlStore, by_hand: ByHand, clock: Clock, door: str
) -> None:
    end, state = DOORS[door]
    job_id = end(store, by_hand, clock)
    [delivery] = deliveries(store)
    assert told(delivery) == (job_id, state)
    assert delivery.payload["url"] == URL
    assert (delivery.state, delivery.queue, delivery.webhook) == (State.PENDING, DELIVERY_QUEUE, None)
    assert (delivery.max_attempts, delivery.spec_hash) == (DELIVERY_ATTEMPTS, None)
    assert history(store, delivery.id) == ["enqueued"]
    clock.move(3_600.0)  # a hand on SQLite has the time of the host, which has gone on since the clock was held
    assert claim_this(store, delivery.id).payload == delivery.payload, "it is due at once"


def test_only_who_names_the_engines_own_task_gets_a_delivery(store: SqlStore) -> None:
    settle_well(store, start(store, webhook=URL), Succeeded())
    assert store.claim("bash", 10) == []
    assert store.claim("bash", 10, queues=[DELIVERY_QUEUE]) == []
    [claimed] = store.claim("ann", 10, tasks=["add", DELIVERY_TASK])
    assert claimed.payload["url"] == URL


def test_what_is_told(store: SqlStore) -> None:
    good, bad = start(store, webhook=URL, traceparent="00-trace-01"), start(store, webhook=URL)
    settle_well(store, good, Succeeded({"sum": 3, "name": 'Zoë "Z"', "exact": 12345678901234567890}))
    settle_well(store, bad, Failed(JobError("bad", "will never work", "line 1\nline 2", retryable=False)))
    first, second = deliveries(store)
    finished = store.job(good.job_id).finished_at
    assert finished is not None
    assert first.payload["job"] == {
        "id": good.job_id,
        "task": "add",
        "queue": "default",
        "state": "succeeded",
        "attempt": 1,
        "finished_at": finished.strftime("%Y-%m-%dT%H:%M:%S.%fZ"),
        "result": {"sum": 3, "name": 'Zoë "Z"', "exact": 12345678901234567890},
        "result_omitted": False,
        "result_ref": None,
        "error": None,
    }
    assert first.traceparent == "00-trace-01"
    job = second.payload["job"]
    assert (job["error"]["code"], job["error"]["message"], job["result"]) == ("bad", "will never work", None)


def test_a_long_result_is_left_out(store: SqlStore) -> None:
    longest = "é" * (LONGEST_RESULT_BYTES // 2 - 2) + "x"  # two bytes each, and two quotes around them
    for result in (longest, f"{longest}x"):
        settle_well(store, start(store, webhook=URL), Succeeded(result))
    settle_well(store, start(store, webhook=URL), Succeeded(None, "artifact://x/result.json"))
    sent = [job.payload["job"] for job in deliveries(store)]
    assert [job["result"] for job in sent] == [longest, None, None]
    assert [job["result_omitted"] for job in sent] == [False, True, False]
    assert [job["result_ref"] for job in sent] == [None, None, "artifact://x/result.json"]


def test_only_the_ends_that_were_asked_for_are_told(store: SqlStore) -> None:
    for on in (["succeeded"], ["failed"], ["cancelled"]):
        for outcome in (Succeeded(), HOPELESS, Cancelled()):
            settle_well(store, start(store, webhook={"url": URL, "on": on}), outcome)
    assert [told(job)[1] for job in deliveries(store)] == ["succeeded", "failed", "cancelled"]


def test_a_job_that_goes_on_tells_nothing(store: SqlStore) -> None:
    for outcome in (BROKEN, KILLED, Released(), Snoozed(30.0)):
        settle_well(store, start(store, webhook=EVERY_END), outcome)
    settle_well(store, start(store), Succeeded())
    assert deliveries(store) == []


def test_a_report_that_is_repeated_or_refused_tells_nothing_more(store: SqlStore) -> None:
    claimed = start(store, webhook=EVERY_END)
    store.settle([report(claimed, Succeeded(1)) for _ in range(3)])
    store.settle([report(claimed, Succeeded(1)), report(claimed, HOPELESS)])
    assert len(deliveries(store)) == 1


def test_a_requeued_job_tells_of_its_next_end_too(store: SqlStore) -> None:
    claimed = start(store, webhook=EVERY_END)
    settle_well(store, claimed, HOPELESS)
    store.requeue([claimed.job_id])
    settle_well(store, claim_this(store, claimed.job_id), Succeeded())
    assert [told(job)[1] for job in deliveries(store)] == ["failed", "succeeded"]
    assert [job.payload["job"]["attempt"] for job in deliveries(store)] == [1, 2]


def test_each_of_a_batch_is_told_of(store: SqlStore) -> None:
    ids = [*enqueue_many(store, 2, webhook=URL), *enqueue_many(store, 30, webhook=URL)]  # the latter by COPY
    assert store.job(ids[0]).webhook == {"url": URL, "on": ["succeeded", "failed"]}
    claimed = store.claim("ann", 100)
    store.settle([report(job, Succeeded()) for job in claimed])
    assert sorted(told(job)[0] for job in deliveries(store)) == sorted(ids)


@on_postgres
@pytest.mark.parametrize("opened", POSTGRES_ONLY[:1])
def test_in_the_users_own_transaction_it_comes_with_the_commit(
    store: SqlStore, database_url: str, opened: Callable[[str], Any]
) -> None:
    kept, dropped = start(store, webhook=URL), start(store, webhook=URL)
    with opened(database_url) as mine:
        store.settle_in(mine, report(dropped, Succeeded()))
        mine.rollback()
        store.settle_in(mine, report(kept, Succeeded()))
        assert deliveries(store) == [], "nothing is told before the commit"
        mine.commit()
    assert [told(job)[0] for job in deliveries(store)] == [kept.job_id]


def test_a_hand_that_rolls_back_leaves_nothing(store: SqlStore, by_hand: ByHand) -> None:
    job_id = start(store, webhook=URL).job_id
    with by_hand.engine.connect() as connection:
        connection.exec_driver_sql(f"UPDATE holdfast_jobs SET state = 'succeeded' WHERE id = '{job_id}'")
        connection.rollback()
    assert deliveries(store) == []


def test_an_ill_formed_webhook_is_refused_at_the_door(store: SqlStore, by_hand: ByHand) -> None:
    start(store)
    typed_in = "CAST(:webhook AS json)" if by_hand.is_postgres else ":webhook"
    for typed in ("[]", '"https://x.example"', "{}", '{"url": 1, "on": []}', '{"url": "x", "on": "y"}'):
        for statement in (
            f"INSERT INTO holdfast_jobs (task, webhook) VALUES ('add', {typed_in})",
            f"UPDATE holdfast_jobs SET webhook = {typed_in}",
        ):
            with pytest.raises(IntegrityError, match="webhook"):
                by_hand(statement, webhook=typed)
    assert by_hand.count("holdfast_jobs") == 1
    assert by_hand.count("holdfast_jobs", "webhook IS NULL") == 1


def test_odd_words_in_a_webhook_typed_by_hand_keep_no_job_from_ending(store: SqlStore, by_hand: ByHand) -> None:
    claimed = start(store)
    odd = '{"url": "", "on": [1, null, {"succeeded": []}], "more": true}'
    typed_in = "CAST(:webhook AS json)" if by_hand.is_postgres else ":webhook"
    by_hand(f"UPDATE holdfast_jobs SET webhook = {typed_in}", webhook=odd)
    settle_well(store, claimed, Succeeded())
    assert store.job(claimed.job_id).state is State.SUCCEEDED


@pytest.mark.parametrize(
    ("webhook", "field"),
    [
        ("ftp://x.example", "webhook"),
        ({"url": "https://a:b@x.example"}, "webhook.url"),
        ({"url": URL, "on": ["started"]}, "webhook.on"),
        ({"url": URL, "on": []}, "webhook.on"),
        ({"url": URL, "events": []}, "webhook.events"),
        ({"on": ["failed"]}, "webhook.url"),
        (7, "webhook"),
    ],
)
def test_bad_input_is_named(webhook: Any, field: str) -> None:
    with pytest.raises(InvalidInput) as refused:
        new(webhook=webhook)
    assert refused.value.field == field
    assert "a:b" not in str(refused.value)


def test_nobody_else_enqueues_a_delivery() -> None:
    with pytest.raises(InvalidInput, match="the engine's own"):
        new(DELIVERY_TASK, payload={"url": URL, "event": "job.succeeded", "job": {}})
