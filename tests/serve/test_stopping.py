"""A server that stops answers everybody who waits, finishes what is under way, and lets nobody new in."""

from __future__ import annotations

import asyncio
import threading
from typing import Any

import httpx
import pytest

from holdfast.stores.sql_store import SqlStore
from tests.serve.grounds import serving
from tests.serve.raw import call, calls, until
from tests.serve.speaking import claim, lease


def test_a_stop_answers_waiting_polls_and_finishes_what_is_under_way(
    served_database: str, queue: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    settling, go_on = threading.Event(), threading.Event()
    real = SqlStore.settle

    def held(store: SqlStore, reports: Any) -> Any:
        settling.set()
        assert go_on.wait(30)
        return real(store, reports)

    with serving(served_database) as served, served.client("worker") as worker:
        served.enqueue(queue)
        job = claim(worker, queue)
        monkeypatch.setattr(SqlStore, "settle", held)
        plane = served.control.plane
        assert plane is not None
        stopping = threading.Thread(target=served.control.stop)

        async def story() -> None:
            asked = {"streams": [f"{queue}-empty"], "max_wait_ms": 60_000}
            token = served.tokens["worker"]
            async with calls(20, served.url, token, "claim", **asked) as waiting:
                await until(lambda: plane.hub.waiting == 20, "all of them wait")
                report = await call(served.url, token, "complete", **lease(job), result=1)
                await until(settling.is_set, "a report is under way")
                stopping.start()
                answers = await asyncio.gather(*(one.answer() for one in waiting))
                assert {(status, answer["claimed"]) for status, answer in answers} == {(200, False)}
                go_on.set()
                status, answer = await report.answer()
                assert (status, answer["ok"]) == (200, True)
                report.hang_up()

        asyncio.run(story())
        stopping.join(30)
        assert not stopping.is_alive()
        with pytest.raises(httpx.ConnectError):
            httpx.get(f"{served.url}/healthz")
        assert served.store.job(job["job_id"]).state == "succeeded"
