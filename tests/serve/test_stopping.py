"""A server that stops answers everybody who waits, finishes what is under way, and lets nobody new in."""

from __future__ import annotations

import asyncio
import signal
import threading
from pathlib import Path
from typing import Any

import httpx
import pytest

from holdfast.stores.sql_store import SqlStore
from tests.chaos.proxy import ForgetfulProxy
from tests.serve import http
from tests.serve.grounds import new_token, serving
from tests.serve.raw import call, calls, until
from tests.serve.speaking import claim, lease
from tests.serve.test_command import ready, url_of
from tests.servers.waiting import DEADLINE_SECONDS, wait_until
from tests.worker.site import Site


def test_a_stop_answers_waiting_polls_and_finishes_what_is_under_way(
    served_database: str, queue: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    settling, go_on = threading.Event(), threading.Event()
    real = SqlStore.settle

    def held(store: SqlStore, reports: Any) -> Any:
        settling.set()
        assert go_on.wait(DEADLINE_SECONDS)
        return real(store, reports)

    with serving(served_database) as served, served.client("worker") as worker:
        served.enqueue(queue)
        job = claim(worker, queue)
        monkeypatch.setattr(SqlStore, "settle", held)
        plane = served.control.plane
        assert plane is not None
        stopping = threading.Thread(target=served.control.stop)

        async def story() -> None:
            most_ms = 60_000
            asked = {"streams": [f"{queue}-empty"], "max_wait_ms": most_ms}
            token = served.tokens["worker"]
            async with calls(20, served.url, token, "claim", **asked) as waiting:
                await until(lambda: plane.hub.waiting == 20, "all of them wait")
                report = await call(served.url, token, "complete", **lease(job), result=1)
                await until(settling.is_set, "a report is under way")
                stopping.start()
                answers = await asyncio.gather(*(one.answer() for one in waiting))
                assert {(status, answer["claimed"]) for status, answer in answers} == {(200, False)}
                assert max(answer["waited_ms"] for _status, answer in answers) < most_ms, "the stop ended the polls"
                go_on.set()
                status, answer = await report.answer()
                assert (status, answer["ok"]) == (200, True)
                report.hang_up()

        asyncio.run(story())
        stopping.join(DEADLINE_SECONDS)
        assert not stopping.is_alive()
        with pytest.raises(httpx.ConnectError):
            http.get(f"{served.url}/healthz")
        assert served.store.job(job["job_id"]).state == "succeeded"


@pytest.mark.parametrize("served_database", ["postgres"], indirect=True)
def test_a_store_that_hangs_delays_neither_the_start_nor_the_stop(
    served_database: str, queue: str, tmp_path: Path
) -> None:
    with Site(tmp_path, served_database) as site, ForgetfulProxy(served_database) as proxy:
        proxy.become_a_black_hole()
        process = site.start("serve", "--port", "0", url=proxy.url, HOLDFAST_GRACE_SECONDS="1")
        site.workers.append(process)
        url = url_of(process)
        assert http.get(f"{url}/healthz").status_code == 200
        assert "The store is away" not in process.text().partition(url)[0], "the start does not wait for the store"
        proxy.forward_again()
        token = new_token(site.store, "worker")
        wait_until(lambda: ready(url) == 200, what="it is ready")

        async def story() -> None:
            asked = {"streams": [queue], "max_wait_ms": 60_000}
            async with calls(5, url, token, "claim", **asked) as waiting:
                known = http.get(f"{url}/internal/worker/store", headers={"Authorization": f"Bearer {token}"})
                assert known.is_success, "and what was sent before has been read"
                proxy.become_a_black_hole()
                hasty = await call(url, token, "claim", streams=[queue])
                assert http.get(f"{url}/healthz").is_success
                process.send(signal.SIGTERM)
                answers = [await one.answer() for one in [*waiting, hasty]]
                for status, answer in answers:
                    assert status == 503 or answer["claimed"] is False, answer
                hasty.hang_up()

        asyncio.run(story())
        assert process.wait() == 0
