"""What the server says of itself: requests, those who wait, and how busy its budgets are."""

from __future__ import annotations

import time
from collections.abc import Iterator
from importlib.metadata import version

from prometheus_client.core import GaugeMetricFamily, Metric
from starlette.types import ASGIApp, Message, Receive, Scope, Send

from holdfast.domain.events import Events
from holdfast.observe.board import Board
from holdfast.observe.duty_metrics import DutyMetrics
from holdfast.observe.series import OTHER, counters, histograms
from holdfast.serve.budget import Budget
from holdfast.serve.hub import Hub
from holdfast.serve.plane import Plane
from holdfast.serve.refusals import route_of

METHODS = frozenset({"GET", "POST", "PUT", "PATCH", "DELETE", "HEAD", "OPTIONS"})
REQUEST_SECONDS = (0.001, 0.0025, 0.005, 0.01, 0.025, 0.05, 0.1, 0.25, 0.5, 1.0, 2.5, 5.0, 10.0, 30.0, 60.0)
PART = "control_plane"


class RequestMetrics:
    """ASGI: every request by the template of its route, never by what was asked for. Its time ends where the answer
    begins: a stream of events goes on for hours. A claim that waits counts with its wait."""

    def __init__(self, app: ASGIApp, board: Board) -> None:
        self._app = app
        self._requests = counters(
            board.registry,
            "http_requests",
            "Requests answered, by route, method and status.",
            "route",
            "method",
            "status",
        )
        self._seconds = histograms(
            board.registry,
            "http_request",
            "Time from a request to the beginning of its answer; of a claim, with what it waited.",
            REQUEST_SECONDS,
            "route",
        )

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        if scope["type"] != "http":
            await self._app(scope, receive, send)
            return
        began, answered = time.perf_counter(), False

        async def watched(message: Message) -> None:
            nonlocal answered
            if message["type"] == "http.response.start":
                answered = True
                self._note(scope, message["status"], began)
            await send(message)

        try:
            await self._app(scope, receive, watched)
        except Exception:
            if not answered:
                self._note(scope, 500, began)  # the server answers it further out
            raise

    def _note(self, scope: Scope, status: int, began: float) -> None:
        route = route_of(scope)
        method = scope["method"] if scope["method"] in METHODS else OTHER
        self._requests[route, method, str(status)].inc()
        self._seconds[route,].observe(time.perf_counter() - began)


def make_board(events: Events) -> Board:
    """That of a control plane that has its process to itself."""
    board = Board(version("holdfast"))
    events.subscribe(DutyMetrics(board.registry))
    return board


def put_on(board: Board, plane: Plane) -> None:
    board.registry.register(BudgetMetrics(plane.budgets, plane.hub))
    board.pools.add(PART, {budget.name: budget.pool_use for budget in plane.budgets})


class BudgetMetrics:
    """A collector; read when somebody looks."""

    def __init__(self, budgets: tuple[Budget, ...], hub: Hub) -> None:
        self._budgets = budgets
        self._hub = hub

    def collect(self) -> Iterator[Metric]:
        yield self._each("budget_threads", "Calls to the store that a budget may have under way at once.", "threads")
        yield self._each("budget_busy", "Calls to the store under way.", "busy")
        yield self._each("budget_waiting", "Calls that wait for a thread of their budget.", "queued")
        yield GaugeMetricFamily("holdfast_long_polls_waiting", "Claims that wait for a job.", value=self._hub.waiting)

    def _each(self, name: str, text: str, figure: str) -> Metric:
        family = GaugeMetricFamily(f"holdfast_{name}", text, labels=["budget"])
        for budget in self._budgets:
            family.add_metric([budget.name], float(getattr(budget, figure)))
        return family
