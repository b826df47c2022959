"""Eight processes empty one queue: a job is held by one of them at a time, and succeeds once."""

import random
from collections import Counter
from pathlib import Path

from holdfast.domain.job import Claimed, NewJob
from holdfast.domain.outcome import Crashed, Failed, JobError, Outcome, Released, Snoozed, Succeeded
from holdfast.domain.retry import RetryPolicy
from holdfast.stores.sql_store import SqlStore
from tests.chaos.crew import SIZE, Crew
from tests.chaos.databases import assert_verified, opened, query
from tests.chaos.diary import Diary, Worker, assert_log_agrees
from tests.servers.waiting import wait_until

JOBS = 2_000
AT_ONCE = RetryPolicy(kind="fixed", base=0.0, jitter=0.0)
SETBACKS = (Failed(JobError("flaky", "try again")), Crashed("killed", signal=9), Released("deploy"), Snoozed(0.0))


def drain(number: int, url: str, held: Path, begun: Path) -> Diary:
    """Every process has a batch before the first of them ends a job."""
    chance = random.Random(number)
    with opened(url) as store:
        worker = Worker(store, f"worker-{number}", held)
        while batch := worker.next_batch(chance.randint(1, 60)):
            (begun / str(number)).touch()
            wait_until(lambda: len(list(begun.iterdir())) == SIZE, what="every process has a batch")
            chance.shuffle(batch)
            cut = chance.randrange(len(batch) + 1)
            for part in (batch[:cut], batch[cut:]):
                worker.settle((job, an_outcome(job, chance)) for job in part)
        return worker.diary


def an_outcome(job: Claimed, chance: random.Random) -> Outcome:
    if job.attempt > 4 or chance.random() < 0.8:
        return Succeeded({"by attempt": job.attempt})
    return chance.choice(SETBACKS)


def test_eight_processes_drain_two_thousand_jobs(store: SqlStore, store_url: str, crew: Crew, tmp_path: Path) -> None:
    answers = store.enqueue_many(
        [NewJob(task="drain", payload={"n": n}, retry=AT_ONCE, max_attempts=100, max_crashes=100) for n in range(JOBS)]
    )
    held, begun = tmp_path / "held", tmp_path / "begun"
    held.mkdir()
    begun.mkdir()
    diaries = crew.run(drain, store_url, held, begun)

    assert_verified(store_url)
    assert_log_agrees(store_url, diaries)
    successes = query(store_url, "SELECT CAST(job_id AS text) FROM holdfast_events WHERE event = 'succeeded'")
    assert sorted(job_id for (job_id,) in successes) == sorted(answer.id for answer in answers)
    assert store.counts() == {"succeeded": JOBS}
    # Nobody was refused anything, nobody is left holding a job, and the work was really shared.
    assert sum(diary.refused + diary.busy for diary in diaries) == 0
    assert store.refusals() == []
    assert list(held.iterdir()) == []
    assert all(diary.claims for diary in diaries)
    # Every kind of setback happened, so the count of claims is not just the count of jobs.
    endings = Counter(ending.event for diary in diaries for ending in diary.endings)
    assert set(endings) == {"succeeded", "retry_scheduled", "crashed", "released", "snoozed"}
