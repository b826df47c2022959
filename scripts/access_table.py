"""The table of docs/security.md: every operation that the OpenAPI describes, and which scopes open it."""

from __future__ import annotations

import re
from collections.abc import Iterable, Iterator
from typing import Any

from fastapi import FastAPI
from fastapi.dependencies.models import Dependant

from holdfast.domain.events import Events
from holdfast.domain.tokens import Scope
from holdfast.observe.board import Board
from holdfast.serve.app import create_app
from holdfast.serve.auth import Allowed
from holdfast.serve.options import ServeSettings
from holdfast.serve.plane import make_plane

BEGIN, END = "<!-- operations -->", "<!-- /operations -->"
_REGION = re.compile(rf"{BEGIN}.*?{END}", re.DOTALL)
_YES, _NO = "yes", ""


def rendered(text: str) -> str:
    """The page with the table as the code has it."""
    assert BEGIN in text
    return _REGION.sub(lambda _: f"{BEGIN}\n{_table()}\n{END}", text)


def _table() -> str:
    app = create_app(make_plane(ServeSettings(database_url="sqlite://"), Events(), Board("1.0")))
    scopes = _scopes(app)
    head = ["| operation | no token | worker | client | viewer | admin |", "|---|---|---|---|---|---|"]
    rows = [
        _row(f"{method.upper()} {path}", scopes[method.upper(), path])
        for path, methods in app.openapi()["paths"].items()
        for method in methods
    ]
    return "\n".join([*head, *rows])


def _row(operation: str, scopes: frozenset[Scope] | None) -> str:
    marks = [_YES if scopes is None or Scope.ADMIN is scope or scope in scopes else _NO for scope in Scope]
    return f"| `{operation}` | {_YES if scopes is None else _NO} | {' | '.join(marks)} |"


def _scopes(app: FastAPI) -> dict[tuple[str, str], frozenset[Scope] | None]:
    """None where there is no gate at all."""
    found: dict[tuple[str, str], frozenset[Scope] | None] = {}
    for route, path in _flat(app.routes, ""):
        gates = list(_gates(route.dependant))
        scopes = frozenset.intersection(*gates) if gates else None
        found |= {(method, path): scopes for method in route.methods}
    return found


def _flat(routes: Iterable[Any], prefix: str) -> Iterator[tuple[Any, str]]:
    for route in routes:
        if hasattr(route, "methods"):
            yield route, (prefix + route.path).replace(":path}", "}")
        else:
            inner = route.original_router
            yield from _flat(inner.routes, prefix + route.include_context.prefix)


def _gates(dependant: Dependant) -> Iterator[frozenset[Scope]]:
    if isinstance(dependant.call, Allowed):
        yield dependant.call.scopes
    for inner in dependant.dependencies:
        yield from _gates(inner)
