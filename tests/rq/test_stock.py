"""Enqueue here, `rq worker` there, and nothing in between but the settings."""

from __future__ import annotations

import pytest

from holdfast import App
from holdfast.domain.lifecycle import State
from tests.rq.station import Station


@pytest.mark.usefixtures("patient_offers")
def test_an_enqueue_reaches_a_stock_rq_worker(postgres_station: Station, monkeypatch: pytest.MonkeyPatch) -> None:
    station = postgres_station
    monkeypatch.setenv("HOLDFAST_RQ_URL", station.redis_url)
    app = App(station.site.url)

    @app.task(queue=station.queue)
    def add(a: int, b: int) -> int:
        return a * b * 100  # the one that runs is the rq worker's

    handle = add.enqueue(1, b=2)
    app.close()
    assert [message.args for message in station.rq_queue.jobs] == [(handle.id,)]
    worker = station.rq_worker("--burst")
    assert worker.wait() == 0, worker.text()
    job = station.site.job(handle.id)
    assert (job.state, job.result) == (State.SUCCEEDED, 3)
    assert list(station.redis.scan_iter(f"*{handle.id}*")) == [], "RQ keeps nothing of it"
