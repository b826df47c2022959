"""A query parameter that nobody knows is refused: `?quueue=mail` would otherwise list everything. So is one that is
said twice and counts once: `DELETE ?scope=a&scope=b` would delete what only one of them names. One that is known and
has no value, in a question, is one that was not given: `?state=&queue=mail` is what forms and templates make."""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Coroutine
from typing import Any, get_origin
from urllib.parse import parse_qsl, urlencode

from fastapi import Request, Response
from fastapi.routing import APIRoute
from starlette.routing import Match
from starlette.types import Scope

from holdfast.domain.errors import InvalidInput
from holdfast.serve.body import StrictRoute


async def only_known_parameters(request: Request) -> None:
    if not request.query_params:
        return
    route = request.scope["route"]
    assert isinstance(route, APIRoute)
    known = {field.alias: field for field in route.dependant.query_params}
    for name, times in Counter(name for name, _ in request.query_params.multi_items()).items():
        if name not in known:
            rule = f"known are {', '.join(sorted(known))}" if known else "there are none here"
            raise InvalidInput(name[:200], f"unknown parameter; {rule}")
        if times > 1 and get_origin(known[name].field_info.annotation) is not list:
            raise InvalidInput(name, f"must be given once, got {times} of them; ask for each by itself")


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


class EncodedNameRoute(AskingRoute):
    """For `/{name:path}/word`: a slash that stands encoded in the request belongs to the name. So `/a%2Fevents` is the
    thing named `a/events`, and `/a/events` are the events of `a`."""

    def matches(self, scope: Scope) -> tuple[Match, Scope]:
        _, _, word = self.path.rpartition("}/")
        raw: bytes = scope.get("raw_path") or scope["path"].encode()
        if word != self.path and not raw.endswith(b"/" + word.encode()):
            return Match.NONE, {}
        return super().matches(scope)
