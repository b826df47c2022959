"""`holdfast serve` and `holdfast up`, as processes."""

from __future__ import annotations

import asyncio
import re
import signal
import socket
from collections.abc import Iterator
from contextlib import ExitStack, contextmanager
from pathlib import Path

import httpx
import pytest
from prometheus_client.parser import text_string_to_metric_families

from holdfast.wiring.sql import open_store
from tests.acceptance.command_line import InProcess
from tests.serve import http
from tests.serve.grounds import new_token
from tests.serve.raw import call
from tests.servers.waiting import wait_until
from tests.worker.site import Site, WorkerProcess

LISTENING = re.compile(r"(?:listening on|control plane:) (http://127\.0\.0\.1:\d+)")


@pytest.fixture
def site(tmp_path: Path) -> Iterator[Site]:
    with Site(tmp_path, f"sqlite:///{tmp_path / 'holdfast.db'}") as site:
        yield site


def url_of(process: WorkerProcess) -> str:
    wait_until(lambda: LISTENING.search(process.text()) is not None, what=f"it listens:\n{process.text()}")
    found = LISTENING.search(process.text())
    assert found is not None
    return found[1]


def metrics(url: str) -> str:
    return http.get(f"{url}/metrics").raise_for_status().text


def ready(url: str) -> int:
    return http.get(f"{url}/readyz").status_code


def test_it_starts_without_its_store_recovers_and_stops_in_order(site: Site, tmp_path: Path) -> None:
    away = tmp_path / "away"
    database = f"sqlite:///{away / 'holdfast.db'}"
    process = site.start("serve", "--port", "0", url=database)
    site.workers.append(process)
    url = url_of(process)
    wait_until(lambda: "The store is away" in process.text(), what="it says so")
    assert http.get(f"{url}/healthz").status_code == 200
    assert ready(url) == 503
    refused = http.get(f"{url}/internal/worker/store", headers={"Authorization": f"Bearer hf_{'0' * 16}_{'0' * 64}"})
    assert (refused.status_code, refused.headers["retry-after"]) == (503, "1")
    assert str(away) not in refused.text

    away.mkdir()
    wait_until(lambda: ready(url) == 200, what="it recovers by itself")
    store = open_store(database)
    token = new_token(store, "worker")
    store.close()

    async def story() -> None:
        waiting = await call(url, token, "claim", streams=None, max_wait_ms=60_000)
        while not http.get(f"{url}/internal/worker/store", headers={"Authorization": f"Bearer {token}"}).is_success:
            await asyncio.sleep(0.05)
        process.send(signal.SIGTERM)
        status, answer = await waiting.answer()
        assert (status, answer["claimed"]) == (200, False)
        waiting.hang_up()

    asyncio.run(story())
    assert process.wait() == 0
    assert token not in process.text()


def test_what_it_cannot_do_is_said_at_once(tmp_path: Path) -> None:
    holdfast = InProcess(tmp_path)
    with socket.create_server(("127.0.0.1", 0)) as taken:
        port = str(taken.getsockname()[1])
        holdfast("serve", "--port", port).refused(f"port {port}", "taken", "--port")
    holdfast("serve", "--port", "70000").refused("--port", "65535")
    holdfast("serve", "--host", "192.0.2.1", "--port", "0").refused("192.0.2.1", "token")
    (tmp_path / "tasks.py").write_text("from holdfast import App\n\napp = App()\n")
    with socket.create_server(("127.0.0.1", 0)) as taken:
        port = str(taken.getsockname()[1])
        holdfast("up", "tasks:app", "--port", port).refused(f"port {port}", "taken")


def test_a_worker_without_a_token_says_so_at_once(tmp_path: Path) -> None:
    holdfast = InProcess(tmp_path)
    over = ("worker", "tasks:app", "--control-plane", "http://127.0.0.1:1")
    holdfast(*over).refused("wants a token", "--token or HOLDFAST_TOKEN", "holdfast tokens create")
    holdfast(*over, "--token", "@nowhere.txt").refused("nowhere.txt", "cannot be read")


@contextmanager
def usual_port_taken() -> Iterator[bool]:
    """True when this test holds the port; False when another program does, which may release it at any time."""
    with ExitStack() as stack:
        try:
            stack.enter_context(socket.create_server(("127.0.0.1", 8787)))
        except OSError:
            yield False
        else:
            yield True


def test_up_has_a_control_plane_also_where_the_usual_port_is_taken(site: Site) -> None:
    site.tasks("@app.task\ndef answer():\n    return 42\n")
    with usual_port_taken() as is_ours:
        process = site.up("--processes", "1")
        url = url_of(process)
        wait_until(lambda: ready(url) == 200, what="the control plane is ready")
        assert not (is_ours and url.endswith(":8787"))
        wait_until(lambda: f"{url}/welcome?code=" in process.text(), what="a way to the first token is printed")
        assert not any("code=" in line for line in process.text().splitlines() if line.startswith("{")), "not logged"
        headers = {"Authorization": f"Bearer {new_token(site.store, 'client')}"}
        made = http.post(f"{url}/api/v1/jobs", json={"task": "answer", "payload": {}}, headers=headers)
        assert made.status_code == 201, made.text
        wait_until(lambda: site.job(made.json()["id"]).result == 42, what="the worker beside it runs the job")
        # One page for the worker and the control plane, without a token.
        ran = 'holdfast_runs_total{outcome="succeeded",status="applied",task="answer"} 1.0'
        wait_until(lambda: ran in metrics(url), what=f"the run is counted: {metrics(url)}")
        page = metrics(url)
        assert 'holdfast_wait_seconds_count{queue="default"} 1.0' in page
        for part, budget in (("worker", "claims"), ("worker", "control"), ("control_plane", "writes")):
            assert f'holdfast_pool_size{{budget="{budget}",part="{part}"}}' in page
        names = [family.name for family in text_string_to_metric_families(page)]
        assert len(names) == len(set(names))
        assert process.stop() == 0
    with pytest.raises(httpx.ConnectError):
        http.get(f"{url}/healthz")
