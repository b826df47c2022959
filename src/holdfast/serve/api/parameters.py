"""A query parameter that nobody knows is refused: `?quueue=mail` would otherwise list everything. One that is known and
has no value, in a question, is one that was not given: `?state=&queue=mail` is what forms and templates make."""

from __future__ import annotations

from collections.abc import Callable, Coroutine
from typing import Any
from urllib.parse import parse_qsl, urlencode

from fastapi import Request, Response
from fastapi.routing import APIRoute

from holdfast.domain.errors import InvalidInput
from holdfast.serve.body import StrictRoute


async def only_known_parameters(request: Request) -> None:
    if not request.query_params:
        return
    route = request.scope["route"]
    assert isinstance(route, APIRoute)
    known = sorted(field.alias for field in route.dependant.query_params)
    for name in request.query_params:
        if name not in known:
            rule = f"known are {', '.join(known)}" if known else "there are none here"
            raise InvalidInput(name[:200], f"unknown parameter; {rule}")


class AskingRoute(StrictRoute):
    """Only where nothing is changed: an empty `?id=` of a replay is a mistake, and would cost a second job."""

    def get_route_handler(self) -> Callable[[Request], Coroutine[Any, Any, Response]]:
        handle = super().get_route_handler()
        if self.methods != {"GET"}:
            return handle
        known = {field.alias for field in self.dependant.query_params}

        async def without_empty_ones(request: Request) -> Response:
            """The parameters are read from the scope, once, by whoever asks for them first."""
            text = request.scope["query_string"].decode("latin-1")
            given = parse_qsl(text, keep_blank_values=True)
            kept = [(name, value) for name, value in given if value or name not in known]
            if len(kept) < len(given):
                request.scope["query_string"] = urlencode(kept).encode()
            return await handle(request)

        return without_empty_ones
