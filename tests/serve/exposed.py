"""Everything that is ever exposed: the metrics of a worker and of a control plane, each with a sample of every kind."""

from __future__ import annotations

import asyncio
from collections import defaultdict
from collections.abc import Iterable
from datetime import UTC, datetime, timedelta

from prometheus_client.core import Metric

from holdfast.domain.events import Claims, Events
from holdfast.domain.lifecycle import State
from holdfast.domain.views import QueueView, SourceView, StateCount, WorkerView
from holdfast.observe.board import Board
from holdfast.observe.metrics import MetricsSubscriber
from holdfast.serve.fleet_metrics import families, gauge
from holdfast.serve.gauges import FleetNow
from holdfast.serve.options import ServeSettings
from holdfast.serve.plane import make_plane
from holdfast.serve.request_metrics import RequestMetrics, put_on
from holdfast.stores.inspection.postgres import TableHealth
from tests.unit.observe.samples import EVERY_KIND, run_ended

NOW = datetime(2026, 11, 16, 12, 0, tzinfo=UTC)


def fleet(*queues: QueueView, sources: tuple[SourceView, ...] = (), workers: tuple[WorkerView, ...] = ()) -> FleetNow:
    return FleetNow(
        taken_at=NOW,
        queues=queues or (queue("default"),),
        states=tuple(StateCount(state, 3, at_least=False) for state in State),
        workers=workers,
        sources=sources or (source("crm"),),
        stuck=(),
        tables=(TableHealth("holdfast_jobs", 300, 100, False, False),),
        duties={"reaper": 4.0},
        oldest_snapshot_seconds=2.5,
        took_seconds=0.01,
    )


def queue(name: str, ready: int = 1, waited: float | None = 30.0, paused: bool = False) -> QueueView:
    since = None if waited is None else NOW - timedelta(seconds=waited)
    return QueueView(name, ready, 2, 3, since, NOW if paused else None, None)


def source(name: str, waiting: int = 0) -> SourceView:
    return SourceView(name, True, None, 1, None, 0, None, None, None, waiting=waiting)


def worker(name: str, state: str = "polling", silent: float = 1.0, stopped: bool = False) -> WorkerView:
    return WorkerView(
        id=name,
        host="host",
        pid=1,
        state=state,
        slots=4,
        running=1,
        started_at=NOW,
        beat_at=NOW - timedelta(seconds=silent),
        stopped_at=NOW if stopped else None,
    )


def everything() -> list[Metric]:
    """Of a process that is both, as `holdfast up` is."""
    board = Board("1.0")
    subscriber = MetricsSubscriber(board.registry)
    for event in (*EVERY_KIND, Claims(1, 0.1, (("default", 0.2),)), run_ended("failed"), run_ended(None, "refused")):
        subscriber(event)
    board.pools.add("worker", {"control": lambda: (3, 1)})
    put_on(board, make_plane(ServeSettings(database_url="sqlite://"), Events(), board))
    asyncio.run(_answer(board))
    return [*board.registry.collect(), gauge("store_up", "", 1.0), *families(fleet())]


async def _answer(board: Board) -> None:
    async def app(_scope: object, _receive: object, send: object) -> None:
        await send({"type": "http.response.start", "status": 503})  # type: ignore[operator]

    async def nobody(*_: object) -> None:
        return

    await RequestMetrics(app, board)({"type": "http", "method": "GET"}, nobody, nobody)  # type: ignore[arg-type]


def labels(metrics: Iterable[Metric]) -> dict[str, dict[str, set[str]]]:
    """By the name of each metric as it is written in a query, its labels and the values that were seen of them."""
    found: dict[str, dict[str, set[str]]] = {}
    for metric in metrics:
        name = metric.name + {"counter": "_total", "info": "_info"}.get(metric.type, "")
        assert metric.samples, f"{name} has no sample"
        values: dict[str, set[str]] = defaultdict(set)
        for sample in metric.samples:
            for label, value in sample.labels.items():
                values[label].add(value)
        found[name] = values
    return found
