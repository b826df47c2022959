"""The trace that a request belongs to, as its `traceparent` header says. What cannot be read is not there."""

from __future__ import annotations

from typing import Annotated

from fastapi import Depends, Request

from holdfast.domain.traceparent import checked


async def _traceparent(request: Request) -> str | None:
    given = request.headers.getlist("traceparent")
    return checked(given[0]) if len(given) == 1 else None


TraceparentHeader = Annotated[str | None, Depends(_traceparent)]
