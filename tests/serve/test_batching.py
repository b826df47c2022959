"""Small calls of many clients become one; nobody pays for a neighbour's mistake, or for somebody's slow reads."""

from __future__ import annotations

import asyncio
import sys
import threading
from collections.abc import Sequence
from typing import Any

import httpx
import psycopg
import pytest

from holdfast.domain.errors import StoreUnavailable
from holdfast.periodic.lazy_store import LazyStore
from holdfast.ports import Store
from holdfast.serve import batching
from holdfast.serve.batching import Batch
from holdfast.stores.postgres_url import libpq_url
from holdfast.stores.sql_store import SqlStore
from tests.serve.grounds import Served, serving
from tests.serve.raw import call, until
from tests.serve.speaking import beat, claim, lease, say
from tests.servers.waiting import DEADLINE_SECONDS, wait_until


def test_what_arrives_meanwhile_goes_together_and_a_bad_one_goes_alone() -> None:
    async def story() -> None:
        asked: list[list[int]] = []
        gate = asyncio.Event()

        async def double(items: Sequence[int]) -> list[int]:
            asked.append(list(items))
            await gate.wait()
            if 13 in items:
                raise ValueError("thirteen")
            return [2 * item for item in items]

        batch = Batch(double, most=4, lanes=1)
        callers = [asyncio.ensure_future(batch([number])) for number in (1, 2, 3, 13, 5, 6)]
        await asyncio.sleep(0)
        gate.set()
        answers = await asyncio.gather(*callers, return_exceptions=True)
        assert [answer for answer in answers if not isinstance(answer, ValueError)] == [[2], [4], [6], [10], [12]]
        assert isinstance(answers[3], ValueError)
        assert asked == [[1], [2, 3, 13, 5], [2], [3], [13], [5], [6]]

    asyncio.run(story())


def test_who_waited_behind_a_time_out_shares_it(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(batching, "LONG_SECONDS", 0.0)

    async def story() -> None:
        asked: list[list[int]] = []
        gate = asyncio.Event()

        async def away(items: Sequence[int]) -> list[int]:
            asked.append(list(items))
            await gate.wait()
            raise StoreUnavailable("gone fishing")

        batch = Batch(away, lanes=1)
        callers = [asyncio.ensure_future(batch([number])) for number in range(5)]
        await until(lambda: batch.waiting == 4, "one is under way, the others wait behind it")
        gate.set()
        answers = await asyncio.gather(*callers, return_exceptions=True)
        assert [type(answer) for answer in answers] == [StoreUnavailable] * 5
        assert asked == [[0]]

    asyncio.run(story())


def test_who_waits_while_a_store_is_opened_shares_a_failure() -> None:
    tries: list[int] = []
    go_on = threading.Event()
    failures: list[StoreUnavailable] = []

    def away() -> Store:
        tries.append(1)
        assert go_on.wait(DEADLINE_SECONDS)
        raise StoreUnavailable("gone fishing")

    store = LazyStore(away)

    def use() -> None:
        try:
            store()
        except StoreUnavailable as error:
            failures.append(error)

    threads = [threading.Thread(target=use) for _ in range(5)]
    for thread in threads:
        thread.start()
    wait_until(lambda: all(_is_waiting(thread) for thread in threads), what="one tries, the others wait for it")
    go_on.set()
    for thread in threads:
        thread.join()
    assert (len(failures), len(tries)) == (5, 1)
    use()
    assert (len(failures), len(tries)) == (6, 2)


def _is_waiting(thread: threading.Thread) -> bool:
    """In a lock or a condition."""
    frame = sys._current_frames().get(thread.ident or 0)
    return frame is not None and frame.f_code.co_name == "wait"


def test_heartbeats_of_fifty_clients_are_a_few_calls(
    served: Served, worker: httpx.Client, queue: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    sizes: list[int] = []
    go_on = threading.Event()
    real = SqlStore.heartbeat

    def held(store: SqlStore, beats: Any) -> Any:
        sizes.append(len(beats))
        assert go_on.wait(DEADLINE_SECONDS)
        return real(store, beats)

    monkeypatch.setattr(SqlStore, "heartbeat", held)
    served.enqueue(queue, 50)
    jobs = say(worker, "claim", streams=[queue], limit=50)["jobs"]
    plane = served.control.plane
    assert plane is not None

    async def story() -> None:
        token = served.tokens["worker"]
        made = [await call(served.url, token, "heartbeat", **beat(job)) for job in jobs]
        await until(lambda: sum(sizes) + plane.batching.heartbeats.waiting == 50, "all have arrived")
        go_on.set()
        answers = [await one.answer() for one in made]
        assert [(status, answer["ok"]) for status, answer in answers] == [(200, True)] * 50
        for one in made:
            one.hang_up()

    asyncio.run(story())
    assert sum(sizes) == 50
    assert len(sizes) <= 3


def test_one_bad_report_does_not_fail_its_neighbours(
    served: Served, worker: httpx.Client, queue: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    go_on = threading.Event()
    real = SqlStore.settle

    def held(store: SqlStore, reports: Any) -> Any:
        assert go_on.wait(DEADLINE_SECONDS)
        return real(store, reports)

    monkeypatch.setattr(SqlStore, "settle", held)
    served.enqueue(queue, 6)
    jobs = say(worker, "claim", streams=[queue], limit=6)["jobs"]
    plane = served.control.plane
    assert plane is not None

    async def story() -> None:
        token = served.tokens["worker"]
        results: list[Any] = [1, 2, 3, "x" * 300_000, 5, 6]  # larger than a row takes
        made = [
            await call(served.url, token, "complete", **lease(job), result=result)
            for job, result in zip(jobs, results, strict=True)
        ]
        await until(lambda: plane.batching.reports.waiting == 4, "two calls are under way, the others wait")
        go_on.set()
        answers = [await one.answer() for one in made]
        assert [status for status, _answer in answers] == [200, 200, 200, 413, 200, 200]
        for one in made:
            one.hang_up()

    asyncio.run(story())
    states = [served.store.job(job["job_id"]).state for job in jobs]
    assert states == ["succeeded"] * 3 + ["running"] + ["succeeded"] * 2


@pytest.mark.parametrize("served_database", ["postgres"], indirect=True)
def test_reads_that_hang_do_not_delay_heartbeats(served_database: str, queue: str) -> None:
    with serving(served_database) as served, served.client("worker") as worker:
        served.enqueue(queue)
        job = claim(worker, queue)
        plane = served.control.plane
        assert plane is not None
        with psycopg.connect(libpq_url(served_database)) as lock:
            lock.execute("LOCK TABLE holdfast_workers IN ACCESS EXCLUSIVE MODE")

            async def story() -> None:
                async with httpx.AsyncClient(
                    base_url=served.url,
                    headers={"Authorization": f"Bearer {served.tokens['viewer']}"},
                    timeout=DEADLINE_SECONDS,
                    verify=False,
                ) as viewer:
                    hanging = [asyncio.ensure_future(viewer.get("/api/v1/workers")) for _ in range(12)]
                    await until(lambda: plane.reads.waiting == 12, "every read hangs on the lock, or behind one")
                    for _ in range(3):
                        one = await call(served.url, served.tokens["worker"], "heartbeat", **beat(job))
                        status, answer = await one.answer()
                        assert (status, answer["ok"]) == (200, True)
                        one.hang_up()
                    assert not any(read.done() for read in hanging)
                    lock.rollback()
                    assert {(await read).status_code for read in hanging} == {200}

            asyncio.run(story())
