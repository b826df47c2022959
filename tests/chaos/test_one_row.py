"""Sixty-four claimers want one job: one of them gets it, the others get nothing, and nobody gets an error."""

from concurrent.futures import ThreadPoolExecutor
from threading import Barrier

import pytest

from holdfast.domain.job import Claimed, NewJob
from holdfast.stores.sql_store import SqlStore
from tests.chaos.crew import Crew
from tests.chaos.databases import assert_verified, opened, query

THREADS = 8
ROUNDS = 6
LEASE_SECONDS = 3600.0  # a claim by id takes a job over whose lease has expired


def claim_rounds(number: int, url: str, job_ids: list[str], by_id: bool) -> list[tuple[int, str]]:
    """Eight threads, each with a connection of its own, all wait for each other before every round; what they won."""
    start = Barrier(THREADS)

    def compete(thread: int) -> list[tuple[int, str]]:
        won: list[tuple[int, str]] = []
        for place, job_id in enumerate(job_ids):
            name = f"claimer-{number}-{thread}"
            start.wait()
            found = store.claim_job(name, job_id) if by_id else first(store.claim(name, 1, [f"round-{place}"]))
            if found is not None:
                won.append((place, found.job_id))
        return won

    with opened(url) as store, ThreadPoolExecutor(THREADS) as pool:
        return [win for wins in pool.map(compete, range(THREADS)) for win in wins]


def first(claimed: list[Claimed]) -> Claimed | None:
    return claimed[0] if claimed else None


@pytest.mark.parametrize("by_id", [False, True], ids=["from the queue", "by its id"])
def test_one_of_sixty_four_claimers_wins_the_only_row(by_id: bool, store: SqlStore, store_url: str, crew: Crew) -> None:
    answers = store.enqueue_many(
        [NewJob(task="only", queue=f"round-{place}", lease_seconds=LEASE_SECONDS) for place in range(ROUNDS)]
    )
    job_ids = [answer.id for answer in answers]
    wins = [win for won in crew.run(claim_rounds, store_url, job_ids, by_id) for win in won]
    assert sorted(wins) == list(enumerate(job_ids))
    assert store.counts() == {"running": ROUNDS}
    [(claims,)] = query(store_url, "SELECT count(*) FROM holdfast_events WHERE event = 'claimed'")
    assert claims == ROUNDS
    assert_verified(store_url)


def test_sixty_four_claimers_of_a_limited_source_get_one_job(store: SqlStore, store_url: str, crew: Crew) -> None:
    store.set_source("mirror", max_concurrent=1)
    answers = store.enqueue_many(
        [NewJob(task="only", queue="round-0", source="mirror", lease_seconds=LEASE_SECONDS) for _ in range(100)]
    )
    wins = [win for won in crew.run(claim_rounds, store_url, [answers[0].id], False) for win in won]
    assert len(wins) == 1
    assert store.counts() == {"pending": 99, "running": 1}
    assert_verified(store_url)
