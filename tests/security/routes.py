"""Every route of a control plane: those that its OpenAPI describes, and those that it does not."""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from typing import Any

from fastapi import FastAPI

from holdfast.domain.events import Events
from holdfast.observe.board import Board
from holdfast.serve.app import create_app
from holdfast.serve.options import ServeSettings
from holdfast.serve.plane import make_plane


def application() -> FastAPI:
    return create_app(make_plane(ServeSettings(database_url="sqlite://"), Events(), Board("1.0")))


def described(app: FastAPI) -> set[str]:
    """`POST /api/v1/jobs`, …"""
    return {f"{method.upper()} {path}" for path, methods in app.openapi()["paths"].items() for method in methods}


def hidden(app: FastAPI) -> set[str]:
    """Those of the pages, the figures and the description itself; none of them has a prefix."""
    return {
        f"{method} {route.path.replace(':path}', '}')}"
        for route in _flat(app.routes)
        if not route.include_in_schema
        for method in route.methods
    }


def _flat(routes: Iterable[Any]) -> Iterator[Any]:
    for route in routes:
        if hasattr(route, "methods"):
            yield route
        else:  # what FastAPI makes of a router that was included
            yield from _flat(route.original_router.routes)
