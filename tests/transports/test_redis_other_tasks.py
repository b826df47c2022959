"""Messages about tasks that an asker does not know: they are left to others, cost next to nothing, and hide no job."""

import uuid
from collections import Counter
from collections.abc import Iterator
from contextlib import closing

import pytest

from holdfast.domain.job import NewJob
from holdfast.throwaway.valkey import ValkeyEndpoint
from holdfast.wiring.redis import streamed
from tests.chaos.conftest import sqlite_url
from tests.servers.waiting import DEADLINE_SECONDS
from tests.transports.streaming import Fleet

__all__ = ["sqlite_url"]

MINE = ["mine"]


@pytest.fixture
def fleet(sqlite_url: str, valkey_server: ValkeyEndpoint) -> Iterator[Fleet]:
    with Fleet(sqlite_url, valkey_server.url, uuid.uuid4().hex, window=1_100) as fleet:
        fleet.claim(tasks=MINE)  # its only look into the database
        yield fleet


@pytest.fixture
def calls(fleet: Fleet, monkeypatch: pytest.MonkeyPatch) -> Counter[str]:
    """How often the store is asked by those who read messages."""
    counted: Counter[str] = Counter()
    for name in ("claim_jobs", "offers_of", "claim"):
        verb = getattr(fleet.plain, name)

        def counting(*arguments: object, _name: str = name, _verb: object = verb, **named: object) -> object:
            counted[_name] += 1
            assert callable(_verb)
            return _verb(*arguments, **named)

        monkeypatch.setattr(fleet.plain, name, counting)
    return counted


def mine(fleet: Fleet, count: int) -> list[str]:
    ids = [answer.id for answer in fleet.store.enqueue_many([NewJob(task="mine") for _ in range(count)])]
    fleet.flush()
    return ids


@pytest.mark.parametrize("limit", [1, 10])
def test_whoever_does_not_know_the_task_wakes_nobody_and_asks_once_for_each(
    fleet: Fleet, calls: Counter[str], limit: int
) -> None:
    ids = fleet.enqueue(20)
    with closing(fleet.redis.pubsub()) as ear:
        ear.subscribe(fleet.names.wake)
        assert ear.get_message(timeout=DEADLINE_SECONDS)["type"] == "subscribe"
        for _ in range(100):
            assert fleet.claim(tasks=MINE, limit=limit) == []
        fleet.redis.publish(fleet.names.wake, "the end")
        heard = ear.get_message(timeout=DEADLINE_SECONDS)["data"]
    assert heard == b"the end", "it would wake itself"
    assert calls["claim_jobs"] <= 20
    assert calls["offers_of"] <= 20
    assert calls["claim"] == 0
    assert (fleet.length(), fleet.pending()) == (20, 0)
    found = [job for _ in range(20) for job in fleet.claim("bob", tasks=["add"])]
    assert sorted(job.job_id for job in found) == sorted(ids), "who knows it gets them"


def test_jobs_behind_and_among_a_thousand_of_other_tasks_are_found(fleet: Fleet) -> None:
    fleet.enqueue(500)
    ids = mine(fleet, 2)
    fleet.enqueue(500)
    ids += mine(fleet, 2)
    found: list[str] = []
    claims = 0
    while len(found) < len(ids):
        found += [job.job_id for job in fleet.claim(tasks=MINE, limit=10)]
        claims += 1
        assert claims < 50
    print(f"found after {claims} claims, without a look into the database")
    assert sorted(found) == sorted(ids)
    assert fleet.length() == 1_004, "the others are still there"


def test_a_window_full_of_other_tasks_hides_no_job(fleet: Fleet) -> None:
    fleet.enqueue(1_200)
    assert fleet.length() == 1_100
    ids = mine(fleet, 3)
    fleet.sweep()
    assert fleet.length() == 1_100, "there is no room for a message about them"
    looking = streamed(fleet.plain, fleet.transport)
    found = [job.job_id for _ in range(3) for job in looking.claim("ann", 1, tasks=MINE)]
    assert sorted(found) == sorted(ids)
