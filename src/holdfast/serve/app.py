"""The application: every router, how refusals are answered, and what is done before the first and after the last
request."""

from __future__ import annotations

from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from importlib.metadata import version

from fastapi import FastAPI

from holdfast.serve import guard, health, metrics, openapi, problems
from holdfast.serve.api.router import router as api
from holdfast.serve.contract.router import router as contract
from holdfast.serve.dashboard.router import router as dashboard
from holdfast.serve.plane import Plane
from holdfast.serve.request_metrics import RequestMetrics

ABOUT = "The worker contract and the client API of Holdfast: jobs, leases and their records, over HTTP."


def create_app(plane: Plane) -> FastAPI:
    @asynccontextmanager
    async def lifespan(_app: FastAPI) -> AsyncIterator[None]:
        await plane.open()
        yield
        await minutes.close()
        await plane.close()

    app = FastAPI(
        title="Holdfast",
        description=ABOUT,
        version=version("holdfast"),
        docs_url=None,
        redoc_url=None,
        openapi_url=None,
        # A redirect would be built from the Host header, and given to anybody.
        redirect_slashes=False,
        # FastAPI makes spans of its own where there is a provider, with the whole address of every request in them: the
        # code of a one-time link, a token in the wrong place. What belongs into a trace, we put there ourselves.
        telemetry={"tracing": False, "metrics": False, "logs": False, "auto_configure": False},
        lifespan=lifespan,
    )
    app.state.plane = plane
    minutes = guard.install(app, plane)
    app.add_middleware(RequestMetrics, board=plane.board)  # the last one added is the outermost
    problems.install(app)
    for router in (health.router, metrics.router, openapi.router, contract, api, dashboard):
        app.include_router(router)
    return app
