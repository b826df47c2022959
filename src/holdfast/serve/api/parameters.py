"""A query parameter that nobody knows is refused: `?quueue=mail` would otherwise list everything."""

from __future__ import annotations

from fastapi import Request
from fastapi.routing import APIRoute

from holdfast.domain.errors import InvalidInput


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
