"""Long polls: many wait and cost nothing, one job has one winner, and who has gone gets none."""

from __future__ import annotations

import asyncio
import threading
from collections.abc import Iterator
from typing import Any

import httpx
import pytest

from holdfast.domain.errors import StoreUnavailable
from holdfast.domain.lifecycle import State
from holdfast.serve.hub import Hub
from holdfast.stores.sql_store import SqlStore
from tests.chaos.proxy import ForgetfulProxy
from tests.serve.grounds import Served, serving
from tests.serve.raw import call, calls, until
from tests.serve.speaking import claim, lease, say

WAITERS = 500
# One that finds the job, those that find the line empty after it, and polls of the half second that all of it may take.
HANDFUL = 12


def hub(served: Served) -> Hub:
    assert served.control.plane is not None
    return served.control.plane.hub


class Watched:
    """Every claim of this process's stores is counted; while `held` is set its answer is kept back."""

    def __init__(self, monkeypatch: pytest.MonkeyPatch) -> None:
        self.count = 0
        self.under_way = threading.Event()
        self.go_on = threading.Event()
        self.go_on.set()
        real = SqlStore.claim

        def watched(store: SqlStore, *arguments: Any, **named: Any) -> Any:
            self.count += 1
            found = real(store, *arguments, **named)
            if found:
                self.under_way.set()
                assert self.go_on.wait(30)
            return found

        monkeypatch.setattr(SqlStore, "claim", watched)


@pytest.fixture
def claims(monkeypatch: pytest.MonkeyPatch) -> Iterator[Watched]:
    watched = Watched(monkeypatch)
    yield watched
    watched.go_on.set()


def test_five_hundred_wait_for_one_job(served: Served, queue: str, claims: Watched) -> None:
    async def story() -> None:
        asked = {"streams": [queue], "max_wait_ms": 60_000}
        async with calls(WAITERS, served.url, served.tokens["worker"], "claim", **asked) as waiting:
            await until(lambda: hub(served).waiting == WAITERS, "all of them wait")
            claims.count = 0
            [job_id] = served.enqueue(queue)
            answers = [asyncio.ensure_future(one.answer()) for one in waiting]
            done, others = await asyncio.wait(answers, timeout=30, return_when=asyncio.FIRST_COMPLETED)
            [(status, answer)] = [task.result() for task in done]
            assert (status, answer["job_id"]) == (200, job_id)
            assert hub(served).waiting == WAITERS - 1
            assert claims.count <= HANDFUL
            for task in others:
                task.cancel()
        await until(lambda: hub(served).waiting == 0, "who has gone does not wait")

    asyncio.run(story())
    [after] = served.enqueue(queue)
    assert served.store.job(after).state is State.PENDING, "nobody claims for clients that have gone"


def test_a_backlog_goes_to_those_who_wait_each_job_once(served: Served, queue: str) -> None:
    async def story() -> None:
        asked = {"streams": [queue], "max_wait_ms": 30_000}
        async with calls(20, served.url, served.tokens["worker"], "claim", **asked) as waiting:
            await until(lambda: hub(served).waiting == 20, "all of them wait")
            ids = served.enqueue(queue, 20)
            answers = await asyncio.gather(*(one.answer() for one in waiting))
            assert sorted(answer["job_id"] for _status, answer in answers) == sorted(ids)

    asyncio.run(story())


def test_a_wait_ends_with_the_first_job_or_with_its_time(served: Served, worker: httpx.Client, queue: str) -> None:
    answer = say(worker, "claim", streams=[queue], max_wait_ms=200)
    assert (answer["claimed"], answer["waited_ms"] >= 150) == (False, True)

    async def story() -> None:
        one = await call(served.url, served.tokens["worker"], "claim", streams=[queue], max_wait_ms=30_000)
        await until(lambda: hub(served).waiting == 1, "it waits")
        served.enqueue(queue)
        status, found = await one.answer()
        assert (status, found["claimed"]) == (200, True)
        one.hang_up()

    asyncio.run(story())


def test_a_job_claimed_for_a_client_that_has_gone_is_given_back(served: Served, queue: str, claims: Watched) -> None:
    async def story() -> None:
        claims.go_on.clear()
        one = await call(served.url, served.tokens["worker"], "claim", streams=[queue], max_wait_ms=30_000)
        await until(claims.under_way.is_set, "its claim is committed, and the answer on its way")
        before = served.control.connections
        one.hang_up()
        await until(lambda: served.control.connections < before, "the server has seen the connection close")
        claims.go_on.set()
        await until(lambda: served.store.job(job_id).transition == "released", "the job is given back")

    [job_id] = served.enqueue(queue)
    asyncio.run(story())
    job = served.store.job(job_id)
    assert (job.state, job.failures, job.crashes) == (State.PENDING, 0, 0)


def test_with_a_request_id_the_client_can_ask_for_it_again(
    served: Served, worker: httpx.Client, queue: str, claims: Watched
) -> None:
    async def story() -> None:
        claims.go_on.clear()
        asked = {"streams": [queue], "max_wait_ms": 30_000, "request_id": f"again-{queue}"}
        one = await call(served.url, served.tokens["worker"], "claim", **asked)
        await until(claims.under_way.is_set, "its claim is committed, and the answer on its way")
        one.hang_up()
        claims.go_on.set()
        again = await call(served.url, served.tokens["worker"], "claim", **asked)
        status, found = await again.answer()
        assert (status, found["job_id"]) == (200, job_id)
        again.hang_up()
        assert say(worker, "complete", **lease(found))["ok"]

    [job_id] = served.enqueue(queue)
    asyncio.run(story())
    assert [event.event for event in served.store.events(job_id)] == ["enqueued", "claimed", "succeeded"]


def test_a_store_that_fails_is_waited_out(served: Served, queue: str, monkeypatch: pytest.MonkeyPatch) -> None:
    """A poll goes on waiting through an outage; one that does not wait is told."""
    away = threading.Event()
    real = SqlStore.claim

    def claim_or_fail(store: SqlStore, *arguments: Any, **named: Any) -> Any:
        if away.is_set():
            raise StoreUnavailable("gone fishing")
        return real(store, *arguments, **named)

    monkeypatch.setattr(SqlStore, "claim", claim_or_fail)
    away.set()

    async def story() -> None:
        patient = await call(served.url, served.tokens["worker"], "claim", streams=[queue], max_wait_ms=30_000)
        await until(lambda: hub(served).waiting == 1, "it waits")
        hasty = await call(served.url, served.tokens["worker"], "claim", streams=[queue])
        status, problem = await hasty.answer()
        assert (status, problem["title"]) == (503, "The store is away")
        hasty.hang_up()
        [job_id] = served.enqueue(queue)
        away.clear()
        status, found = await patient.answer()
        assert (status, found["job_id"]) == (200, job_id)
        patient.hang_up()

    asyncio.run(story())


def test_two_control_planes_over_one_store(served: Served, worker: httpx.Client, queue: str) -> None:
    """Both wait under one request id, as after a retry at the second: whichever wins, both are given the same job."""
    with serving(served.database_url) as second:

        async def story() -> None:
            asked = {"streams": [queue], "max_wait_ms": 30_000, "request_id": f"both-{queue}"}
            token = served.tokens["worker"]
            both = [await call(one.url, token, "claim", **asked) for one in (served, second)]
            await until(lambda: hub(served).waiting == hub(second).waiting == 1, "both wait")
            [job_id] = served.enqueue(queue)
            answers = [await one.answer() for one in both]
            assert [answer["job_id"] for _status, answer in answers] == [job_id, job_id]
            assert len({answer["lease_token"] for _status, answer in answers}) == 1
            for one in both:
                one.hang_up()

        asyncio.run(story())
        with httpx.Client(base_url=second.url, headers=worker.headers, verify=False) as other:
            served.enqueue(queue)
            job = claim(worker, queue)
            assert say(other, "complete", **lease(job), result=1)["ok"]
            assert say(worker, "complete", **lease(job), result=1)["ok"]
    [claimed] = [event for event in served.store.events(job["job_id"]) if event.event == "succeeded"]
    assert claimed.worker == "tester"


@pytest.mark.parametrize("served_database", ["postgres"], indirect=True)
def test_a_claim_whose_answer_the_database_lost_is_given_back(served_database: str, queue: str) -> None:
    """The poll knows nothing of it: it waits on, and is given the job when it has come back."""
    with ForgetfulProxy(served_database) as proxy, serving(proxy.url) as served, served.client("worker") as worker:
        say(worker, "claim", streams=[queue])  # its connections are open
        [job_id] = served.enqueue(queue)
        proxy.lose_answer_to(b"UPDATE holdfast_jobs")
        job = claim(worker, queue, max_wait_ms=30_000)
        assert proxy.lost == 1
        assert (job["job_id"], job["attempt"]) == (job_id, 2)
        events = [event.event for event in served.store.events(job_id)]
        assert events == ["enqueued", "claimed", "released", "claimed"]
        assert served.store.job(job_id).crashes == 0
