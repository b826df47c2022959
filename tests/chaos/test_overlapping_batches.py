"""Everybody writes to the same rows, in batches of random order: nobody waits in a circle, no report counts twice."""

import random
from collections.abc import Callable

from holdfast.domain.answers import Beat
from holdfast.domain.job import Claimed, NewJob
from holdfast.domain.outcome import Failed, JobError, Outcome, Released, Report, Succeeded
from holdfast.domain.retry import RetryPolicy
from holdfast.stores.sql_store import SqlStore
from tests.chaos.crew import Crew
from tests.chaos.databases import assert_verified, deadlocks, opened, query
from tests.chaos.diary import Diary, Worker, assert_log_agrees

ROWS = 100
OPERATIONS = 40
# Shorter than most of what happens: the reapers always find something.
LEASE_SECONDS = 0.05
OUTCOMES: tuple[Outcome, ...] = (
    Succeeded(),
    Released(),
    Failed(JobError("flaky", "try again")),
    Failed(JobError("broken", "do not", retryable=False)),
)


class Rival:
    """Knows the leases that all its rivals know too, and those it claimed itself."""

    def __init__(self, worker: Worker, leases: list[Claimed], number: int) -> None:
        self._worker = worker
        self._store = worker.store
        self._ids = [lease.job_id for lease in leases]
        self._leases = list(leases)
        self._chance = random.Random(number)

    def compete(self) -> None:
        verbs: tuple[Callable[[], None], ...] = (
            self.settle,
            self.heartbeat,
            self.cancel,
            self.requeue,
            self.reap,
            self.claim,
        )
        for _ in range(OPERATIONS):
            self._chance.choice(verbs)()

    def settle(self) -> None:
        self._worker.report(
            [
                Report(lease.job_id, lease.attempt, lease.lease_token, self._chance.choice(OUTCOMES), "rival")
                for lease in self._some_leases()
            ]
        )

    def heartbeat(self) -> None:
        self._store.heartbeat([Beat(it.job_id, it.attempt, it.lease_token, "rival") for it in self._some_leases()])

    def cancel(self) -> None:
        self._store.cancel(self._some_ids())

    def requeue(self) -> None:
        self._store.requeue(self._some_ids())

    def reap(self) -> None:
        self._store.reap("rival", period=0, lease_seconds=3600, heartbeat_seconds=0)

    def claim(self) -> None:
        self._leases += self._worker.claim(self._chance.randint(1, ROWS))

    def _some_ids(self) -> list[str]:
        return self._chance.sample(self._ids, self._chance.randint(1, len(self._ids)))

    def _some_leases(self) -> list[Claimed]:
        """Mostly the latest: older ones have been lost long since."""
        recent = self._leases[-2 * ROWS :]
        return self._chance.sample(recent, self._chance.randint(1, len(recent)))


def compete(number: int, url: str, leases: list[Claimed]) -> Diary:
    with opened(url) as store:
        worker = Worker(store, f"rival-{number}")
        Rival(worker, leases, number).compete()
        return worker.diary


def test_batches_over_the_same_rows_in_random_orders(store: SqlStore, store_url: str, crew: Crew) -> None:
    retry = RetryPolicy(kind="fixed", base=0.0, jitter=0.0)
    job = NewJob(task="wanted", lease_seconds=LEASE_SECONDS, retry=retry, max_attempts=10_000, max_crashes=10_000)
    store.enqueue_many([job] * ROWS)
    first = Worker(store, "first")
    leases = first.claim(ROWS)
    diaries = crew.run(compete, store_url, leases)

    assert deadlocks(store_url) == 0
    assert_verified(store_url)
    assert_log_agrees(store_url, [first.diary, *diaries])
    happened = {event for (event,) in query(store_url, "SELECT DISTINCT event FROM holdfast_events")}
    assert {"claimed", "succeeded", "lease_lost", "cancelled", "cancel_requested", "requeued", "failed"} <= happened
    assert sum(diary.refused for diary in diaries) > 0
