"""What is done to a store, as one table. To add a line: what must be there, what is done, what must have become of it.

`prepare` makes the ground (past everything that fails) and returns what the others are handed. `act` is what fails at
its n-th step, and `retry` is what somebody does who was told that the store was away: the same again, with the same
ids, tokens and request ids, unless it says otherwise. `judge` sees the one right outcome, and what the last answer was.

Beside that, for every scenario and whatever failed (see `trying.py`): the caller is told so in our own words; nothing
is half done, unless `in_parts` says that it is several transactions; after the retry all that can be seen is as if
nothing had failed, unless it `may_differ`; the audit log is verified; no lock and no broken connection is left behind.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace
from datetime import UTC, datetime
from typing import Any

from sqlalchemy import text
from sqlalchemy.exc import DBAPIError

from holdfast.domain.answers import Beat, Operated, Settled, Status
from holdfast.domain.errors import StoreUnavailable
from holdfast.domain.job import Claimed, Enqueued, NewJob
from holdfast.domain.lifecycle import State
from holdfast.domain.logs import LogLine, Stream
from holdfast.domain.outcome import Failed, JobError, Outcome, Released, Report, Snoozed, Succeeded
from holdfast.domain.record import NewRecord
from holdfast.domain.retention import Group, Kept
from holdfast.domain.schedule import Declaration
from holdfast.stores.sql_store import SqlStore
from holdfast.stores.verbs.settle_in import complete_in
from tests.nth_step.grounds import Hands, is_on_sqlite, type_in

IDS = tuple(f"0199a2b0-0000-7000-8000-{number:012}" for number in range(1, 31))
# A reaper that was away for most of a lease lets expired leases live on: these are long, so that no pause is that long.
LEASE, HEARTBEAT = 3600.0, 20.0
REAPING = {"period": 0.0, "lease_seconds": LEASE, "heartbeat_seconds": HEARTBEAT}
BROKEN = Failed(JobError("boom", "it broke"))
HOPELESS = Failed(JobError("bad", "it will never work", retryable=False))
DIALECTS = ("sqlite", "postgres")
IN_THEIR_OWN = (DBAPIError, StoreUnavailable)  # what fails on the user's own connection is said by their own library


@dataclass(frozen=True)
class Scenario:
    name: str
    prepare: Callable[[SqlStore], Any]
    act: Callable[[Hands, Any], Any]
    judge: Callable[[SqlStore, Any, Any], None]
    retry: Callable[[Hands, Any], Any] | None = None
    told: tuple[type[Exception], ...] = (StoreUnavailable,)
    in_parts: bool = False
    may_differ: bool = False
    dialects: Sequence[str] = DIALECTS

    def try_again(self, hands: Hands, case: Any) -> Any:
        return (self.retry or self.act)(hands, case)


# what must be there


def nothing(_store: SqlStore) -> None:
    return None


def jobs(count: int = 3, **options: Any) -> list[NewJob]:
    return [NewJob(task="add", payload={"number": n}, id=IDS[n], **options) for n in range(count)]


def enqueued(store: SqlStore, count: int = 3, **options: Any) -> list[str]:
    return [answer.id for answer in store.enqueue_many(jobs(count, **options))]


def claimed(store: SqlStore, count: int = 3, **options: Any) -> list[Claimed]:
    enqueued(store, count, **options)
    return list(store.claim("ann", count))


def expired(store: SqlStore, count: int = 3, **options: Any) -> list[Claimed]:
    """Leases that nobody renewed, under a reaper that was never away."""
    found = claimed(store, count, **options)
    store.reap("reaper", **REAPING)
    now = "'2020-01-01T00:00:00.000000Z'" if is_on_sqlite(store) else "clock_timestamp() - interval '1 s'"
    type_in(store, f"UPDATE holdfast_jobs SET lease_expires_at = {now} WHERE state = 'running'")
    return found


def finished(store: SqlStore, count: int = 3, outcome: Outcome | None = None) -> list[str]:
    found = claimed(store, count)
    store.append_logs([LogLine(job.job_id, 1, 1, datetime.now(UTC), Stream.STDOUT, "a line") for job in found])
    store.settle(reports(found, outcome or Succeeded({"sum": 3})))
    return [job.job_id for job in found]


def pruned(store: SqlStore) -> None:
    finished(store)
    assert len(store.prune(group(Kept.JOBS), 10).ids) == 3


def governed(store: SqlStore) -> list[str]:
    """Three jobs of a source that lets two of them in."""
    store.set_source("shop", max_concurrent=2, rate_limit_per_minute=6000, burst=100)
    type_in(store, "UPDATE holdfast_sources SET bucket_level = 100")  # else it fills up while the test runs
    return enqueued(store, source="shop")


def failing(store: SqlStore) -> list[Claimed]:
    """Five running jobs of a source whose breaker opens when they fail."""
    store.set_source("shop", max_concurrent=10)
    return claimed(store, 5, source="shop")


def due_schedules(store: SqlStore) -> tuple[str, ...]:
    names = ("sweep", "tidy")
    store.announce_schedules([Declaration(name=name, task="tidy_up", cron="0 0 1 1 *") for name in names])
    before = "strftime('%Y-%m-%dT%H:%M:%f000Z', 'now', '-1 minute')"
    past = before if is_on_sqlite(store) else "clock_timestamp() - interval '1 minute'"
    type_in(store, f"UPDATE holdfast_schedules SET next_at = {past}")
    return names


def group(what: Kept) -> Group:
    return Group(what, "default", State.SUCCEEDED, 0.0)


# what is done


def reports(found: Sequence[Claimed], outcome: Outcome) -> list[Report]:
    return [Report(job.job_id, job.attempt, job.lease_token, outcome, "ann") for job in found]


def beats(found: Sequence[Claimed]) -> list[Beat]:
    return [Beat(job.job_id, job.attempt, job.lease_token, "ann") for job in found]


def settle(outcome: Outcome) -> Callable[[Hands, list[Claimed]], list[Settled]]:
    return lambda hands, found: hands.store.settle(reports(found, outcome))


def settle_each_otherwise(hands: Hands, found: list[Claimed]) -> list[Settled]:
    outcomes: tuple[Outcome, ...] = (Succeeded({"sum": 3}), BROKEN, Released("deploy"))
    return hands.store.settle([reports([job], way)[0] for job, way in zip(found, outcomes, strict=True)])


def recover_or_claim(hands: Hands, _case: Any) -> list[Claimed]:
    """What a worker does: what it may have been given is looked for before it asks for more."""
    return hands.store.recover("ann") or hands.store.claim("ann", 3)


def recover_or_claim_the_job(hands: Hands, found: list[Claimed]) -> list[Claimed]:
    return hands.store.recover("bob") or claim_the_job(hands, found)


def claim_the_job(hands: Hands, found: list[Claimed]) -> list[Claimed]:
    job = hands.store.claim_job("bob", found[0].job_id, lease_seconds=LEASE, heartbeat_seconds=HEARTBEAT)
    return [] if job is None else [job]


def wait_and_reap_and_claim(hands: Hands, _case: Any) -> list[Claimed]:
    """When nobody is left who knows of the leases."""
    store = hands.store
    assert isinstance(store, SqlStore)
    now = "'2020-01-01T00:00:00.000000Z'" if is_on_sqlite(store) else "clock_timestamp() - interval '1 s'"
    store.reap("reaper", **REAPING)
    type_in(store, f"UPDATE holdfast_jobs SET lease_expires_at = {now} WHERE state = 'running'")
    store.reap("reaper", **REAPING)
    return store.claim("ann", 3)


def enqueue_in_theirs(hands: Hands, _case: Any) -> Enqueued:
    with hands.engine.begin() as connection:
        connection.execute(text("INSERT INTO the_users_own VALUES ('paid') ON CONFLICT DO NOTHING"))
        return hands.store.enqueue(jobs(1)[0], connection)


def complete_in_theirs(hands: Hands, found: list[Claimed]) -> None:
    """As a worker's runner does it: the report that was settled already is not sent again."""
    with hands.engine.begin() as connection:
        connection.execute(text("INSERT INTO the_users_own VALUES ('paid') ON CONFLICT DO NOTHING"))
        complete_in(connection, reports(found, Succeeded({"sum": 3}))[0])


def report_what_they_completed(hands: Hands, found: list[Claimed]) -> None:
    """Whether their commit went through is seen by what they wrote in it."""
    with hands.engine.connect() as connection:
        went_through = connection.execute(text("SELECT 1 FROM the_users_own")).first() is not None
    if not went_through:
        complete_in_theirs(hands, found)
    else:
        assert hands.store.settle(reports(found, Succeeded({"sum": 3})))[0].status is Status.REPLAYED


def write_records(hands: Hands, found: list[Claimed]) -> Any:
    new = [NewRecord(scope="prices", dedupe_key=f"ext_{n}", data={"n": n}) for n in range(3)]
    return hands.store.write_records(new, beats(found)[0])


# what must have become of it


def histories(*expected: str, count: int = 3) -> Callable[[SqlStore, Any, Any], None]:
    """Of the first so many jobs."""

    def judge(store: SqlStore, _case: Any, _answer: Any) -> None:
        for job_id in IDS[:count]:
            assert [event.event for event in store.events(job_id)] == list(expected)

    return judge


def as_many(*counts: int) -> Callable[[SqlStore, Any, Any], None]:
    """So many jobs, all of them pending."""

    def judge(store: SqlStore, _case: Any, _answer: Any) -> None:
        assert store.counts().get("pending", 0) in counts
        assert set(store.counts()) <= {"pending"}

    return judge


def leased(count: int, attempt: int = 1) -> Callable[[SqlStore, Any, list[Claimed]], None]:
    """So many run, and whoever was answered holds every one of them."""

    def judge(store: SqlStore, _case: Any, answer: list[Claimed]) -> None:
        assert len({job.job_id for job in answer}) == len(answer) == count == store.counts()["running"]
        assert {job.attempt for job in answer} == {attempt}
        assert {beaten.status for beaten in store.heartbeat(beats(answer))} == {Status.APPLIED}

    return judge


def leased_in_the_end(store: SqlStore, _case: Any, answer: list[Claimed]) -> None:
    assert len(answer) == store.counts()["running"] == 3
    assert {beaten.status for beaten in store.heartbeat(beats(answer))} == {Status.APPLIED}


def settled(*events: str, count: int = 3) -> Callable[[SqlStore, Any, list[Settled]], None]:
    """Each job has exactly this ending, and the reporter was told so."""

    def judge(store: SqlStore, _case: Any, answer: list[Settled]) -> None:
        assert {found.status for found in answer} <= {Status.APPLIED, Status.REPLAYED}
        assert [found.event for found in answer] == list(events if len(events) == count else events * count)
        assert store.refusals() == []
        for found in answer:
            assert [event.event for event in store.events(found.job_id)] == ["enqueued", "claimed", found.event]

    return judge


def completed_with_their_writes(store: SqlStore, _case: Any, _answer: Any) -> None:
    assert type_in(store, "SELECT note FROM the_users_own") == [("paid",)]
    assert [event.event for event in store.events(IDS[0])] == ["enqueued", "claimed", "succeeded"]


def records_are_kept(store: SqlStore, _case: Any, _answer: Any) -> None:
    assert {record.dedupe_key for record in store.records(scope="prices").items} == {"ext_0", "ext_1", "ext_2"}


def fired_once(store: SqlStore, names: tuple[str, ...], _answer: Any) -> None:
    for name in names:
        [tick] = store.ticks(name)
        assert tick.job_id is not None
        assert store.job(tick.job_id).state is State.PENDING
    assert store.counts() == {"pending": len(names)}


def breaker_opened(store: SqlStore, _case: Any, answer: list[Settled]) -> None:
    settled("retry_scheduled", count=5)(store, None, answer)
    view = store.source("shop")
    assert (view.failure_streak, view.paused_until is not None) == (5, True)


def operated(did: Operated) -> Callable[[SqlStore, Any, Any], None]:
    def judge(_store: SqlStore, _case: Any, answer: Any) -> None:
        assert {found.did for found in answer} == {did}

    return judge


def replayed(store: SqlStore, _case: Any, answer: Enqueued) -> None:
    assert (answer.id, store.job(answer.id).replay_of) == (IDS[9], IDS[0])


def histories_are_gone(store: SqlStore, _case: Any, _answer: Any) -> None:
    assert type_in(store, "SELECT count(*) FROM holdfast_events") == [(0,)]
    retired = store.histories_retired()
    assert retired is not None
    assert retired.jobs == 3


ENQUEUE = (
    Scenario("enqueue under an id", nothing, lambda h, _c: h.store.enqueue(jobs(1)[0]), histories("enqueued", count=1)),
    Scenario("enqueue many under ids", nothing, lambda h, _c: h.store.enqueue_many(jobs(30)), as_many(30)),
    Scenario(
        "enqueue under a unique key",
        nothing,
        lambda h, _c: h.store.enqueue(NewJob(task="add", unique_key="one")),
        as_many(1),
    ),
    Scenario("enqueue", nothing, lambda h, _c: h.store.enqueue(NewJob(task="add")), as_many(1, 2), may_differ=True),
    Scenario(
        "enqueue in bulk",
        nothing,
        lambda h, _c: h.store.enqueue_many([NewJob(task="add", payload={"n": n}) for n in range(250)]),
        as_many(250, 500),
        may_differ=True,
    ),
    Scenario(
        "enqueue in the user's transaction",
        nothing,
        enqueue_in_theirs,
        histories("enqueued", count=1),
        told=IN_THEIR_OWN,
    ),
)
CLAIM = (
    Scenario("claim", enqueued, lambda h, _c: h.store.claim("ann", 3), leased(3), retry=recover_or_claim),
    Scenario("claim under limits", governed, lambda h, _c: h.store.claim("ann", 3), leased(2), retry=recover_or_claim),
    Scenario(
        "claim by request id", enqueued, lambda h, _c: h.store.claim("ann", 3, request_id="that-request"), leased(3)
    ),
    Scenario(
        "claim under limits by request id",
        governed,
        lambda h, _c: h.store.claim("ann", 3, request_id="that-request"),
        leased(2),
    ),
    Scenario(
        "claim one whose lease has expired",
        lambda store: expired(store, 1),
        claim_the_job,
        leased(1, attempt=2),
        retry=recover_or_claim_the_job,
    ),
    Scenario(
        "claim those of a message by request id",
        enqueued,
        lambda h, ids: h.store.claim_jobs("ann", ids, request_id="that-request"),
        leased(3),
    ),
)
SETTLE = (
    Scenario("heartbeat", claimed, lambda h, found: h.store.heartbeat(beats(found)), histories("enqueued", "claimed")),
    Scenario("settle: success", claimed, settle(Succeeded({"sum": 3})), settled("succeeded")),
    Scenario("settle: failure", claimed, settle(BROKEN), settled("retry_scheduled")),
    Scenario("settle: failure for good", claimed, settle(HOPELESS), settled("failed")),
    Scenario("settle: release", claimed, settle(Released("deploy")), settled("released")),
    Scenario("settle: snooze", claimed, settle(Snoozed(30.0, "rate limited")), settled("snoozed")),
    Scenario(
        "settle: a batch",
        claimed,
        settle_each_otherwise,
        settled("succeeded", "retry_scheduled", "released"),
        in_parts=True,
    ),
    Scenario("settle: a source's breaker opens", failing, settle(BROKEN), breaker_opened),
    Scenario(
        "complete in the user's transaction",
        lambda store: claimed(store, 1),
        complete_in_theirs,
        completed_with_their_writes,
        retry=report_what_they_completed,
        told=IN_THEIR_OWN,
        dialects=("postgres",),
    ),
    Scenario(
        "write records", lambda store: claimed(store, 1), write_records, histories("enqueued", "claimed", count=1)
    ),
)
UPKEEP = (
    Scenario(
        "reap",
        expired,
        lambda h, _c: h.store.reap("reaper", **REAPING),
        histories("enqueued", "claimed", "lease_lost"),
        in_parts=True,
    ),
    Scenario("fire schedules", due_schedules, lambda h, _c: h.store.fire_schedules("ann"), fired_once, in_parts=True),
    Scenario(
        "prune",
        finished,
        lambda h, _c: h.store.prune(group(Kept.JOBS), 10),
        histories("enqueued", "claimed", "succeeded", "pruned"),
    ),
    Scenario("retire", pruned, lambda h, _c: h.store.retire(group(Kept.HISTORIES), 10), histories_are_gone),
    Scenario("cancel", enqueued, lambda h, ids: h.store.cancel(ids), operated(Operated.CANCELLED)),
    Scenario(
        "requeue",
        lambda store: finished(store, outcome=HOPELESS),
        lambda h, ids: h.store.requeue(ids),
        histories("enqueued", "claimed", "failed", "requeued"),
    ),
    Scenario("replay under an id", finished, lambda h, ids: h.store.replay(ids[0], IDS[9]), replayed),
)
EVERY = (*ENQUEUE, *CLAIM, *SETTLE, *UPKEEP)

# When the process is gone, nobody is left who remembers what it asked for, unless it asked by a name.
KILLED = (
    *ENQUEUE[:3],
    ENQUEUE[-1],
    replace(CLAIM[0], judge=leased_in_the_end, retry=wait_and_reap_and_claim, may_differ=True),
    *(scenario for scenario in CLAIM if scenario.name.endswith("by request id")),
    *SETTLE,
    *UPKEEP,
)


def named(name: str) -> Scenario:
    return {scenario.name: scenario for scenario in EVERY}[name]
