"""Every refusal of the control plane, as `application/problem+json` (RFC 9457).

A problem says what is wrong, which rule was broken and what to do; what only we know (a traceback, a statement) goes
to the log and never to the client.
"""

from __future__ import annotations

import traceback
from collections.abc import Mapping
from http import HTTPStatus
from typing import Any

from fastapi import FastAPI, Request
from fastapi.exceptions import RequestValidationError
from fastapi.responses import JSONResponse
from pydantic import BaseModel, ConfigDict
from starlette.exceptions import HTTPException

from holdfast.domain.errors import (
    Conflict,
    InvalidInput,
    NotFound,
    RequestFailed,
    SchemaMismatch,
    StoreUnavailable,
    TooLarge,
)
from holdfast.domain.events import Events
from holdfast.domain.events import Problem as Unexpected
from holdfast.domain.names import storable_text

MEDIA_TYPE = "application/problem+json"
RETRY_AFTER_SECONDS = 1
LONGEST_DETAIL = 2_000
_AWAY = "The store is away"


class Problem(BaseModel):
    """Why a request was refused. Nothing was changed by it."""

    model_config = ConfigDict(extra="allow")

    type: str = "about:blank"
    title: str
    status: int
    detail: str
    field: str | None = None
    limit_bytes: int | None = None


class Refused(Exception):
    """Raised by a route: this request is answered with a problem. `more` are further members of it."""

    def __init__(
        self, status: int, title: str, detail: str, headers: Mapping[str, str] | None = None, **more: Any
    ) -> None:
        super().__init__(detail)
        self.status = status
        self.title = title
        self.detail = detail
        self.headers = dict(headers or {})
        self.more = more


class ProblemResponse(JSONResponse):
    media_type = MEDIA_TYPE


def problem(
    status: int, detail: str, title: str | None = None, headers: Mapping[str, str] | None = None, **more: Any
) -> ProblemResponse:
    said = storable_text(detail, LONGEST_DETAIL)
    body = Problem(title=title or HTTPStatus(status).phrase, status=status, detail=said, **more)
    return ProblemResponse(body.model_dump(exclude_none=True), status, headers=dict(headers or {}))


def busy(detail: str) -> Refused:
    """Nothing is wrong with the request: ask again in a moment."""
    return Refused(503, "Ask again", detail, {"Retry-After": str(RETRY_AFTER_SECONDS)})


def _documented(status: int, text: str) -> dict[str, Any]:
    content = {MEDIA_TYPE: {"schema": {"$ref": "#/components/schemas/Problem"}}}
    return {"description": text or HTTPStatus(status).phrase, "model": Problem, "content": content}


_TEXTS = {
    401: "no bearer token, or one that is unknown, revoked or expired",
    403: "the token's scope or its queues do not allow this",
    404: "there is no such thing, or not for this token",
    408: "the body did not arrive in time",
    409: "well-formed, but in conflict with what is stored",
    413: "larger than the limit",
    415: "the body is not application/json",
    422: "a value breaks a rule",
    429: "more requests than this credential may send",
    503: "the store is unavailable; retry after Retry-After, or after a second if that header is absent",
}
# For `responses=` of a router or a route: every refusal it may answer with.
PROBLEMS: dict[int | str, dict[str, Any]] = {status: _documented(status, text) for status, text in _TEXTS.items()}


def problems(*statuses: int) -> dict[int | str, dict[str, Any]]:
    """Some of them."""
    return {status: PROBLEMS[status] for status in statuses}


def install(app: FastAPI) -> None:
    app.add_exception_handler(Refused, _refused)
    app.add_exception_handler(RequestValidationError, _not_valid)
    app.add_exception_handler(HTTPException, _http)
    app.add_exception_handler(Exception, _unexpected)
    for kind in (InvalidInput, NotFound, StoreUnavailable, SchemaMismatch):
        app.add_exception_handler(kind, _known)


async def _refused(_request: Request, error: Exception) -> ProblemResponse:
    assert isinstance(error, Refused)
    return problem(error.status, error.detail, error.title, error.headers, **error.more)


async def _known(_request: Request, error: Exception) -> ProblemResponse:
    match error:
        case Conflict():
            return problem(409, str(error), field=error.field)
        case TooLarge():
            return problem(413, str(error), "Too large", field=error.field, limit_bytes=error.limit_bytes)
        case InvalidInput():
            return problem(422, str(error), field=error.field)
        case NotFound():
            return problem(404, str(error))
        case RequestFailed():
            # Without Retry-After: a client that sent a batch sends its items one by one at once (`remote/refusals.py`).
            return problem(503, "the store failed this request; ask again", "Ask again", failed="request")
        case _:
            # Which store, and what it said, is in the log: whoever asks may be anybody.
            headers = {"Retry-After": str(RETRY_AFTER_SECONDS)}
            return problem(503, "the store does not answer, or has another schema; ask again", _AWAY, headers)


async def _not_valid(_request: Request, error: Exception) -> ProblemResponse:
    """Pydantic repeats what was sent; a problem must not: it may be a lease token."""
    assert isinstance(error, RequestValidationError)
    found = [(".".join(map(str, item["loc"])), str(item["msg"])) for item in error.errors()]
    rules = [{"field": _plain(field), "rule": rule} for field, rule in found[:20]]
    first = rules[0] if rules else {"field": "body", "rule": "cannot be read"}
    return problem(422, f"{first['field']}: {first['rule']}", field=first["field"], problems=rules)


def _plain(field: str) -> str:
    return storable_text(field.removeprefix("body.") or "body", 200)


async def _http(_request: Request, error: Exception) -> ProblemResponse:
    """No such path, or not with this method."""
    assert isinstance(error, HTTPException)
    return problem(error.status_code, str(error.detail), headers=error.headers)


async def _unexpected(request: Request, error: Exception) -> ProblemResponse:
    """Told to the log, with where it happened; the client learns only that it did."""
    events: Events = request.app.state.plane.events
    route = getattr(request.scope.get("route"), "path", "(none)")
    stack = "".join(traceback.format_exception(error))
    events.emit(Unexpected(f"{request.method} {route}", f"{type(error).__name__}: {error}", stack))
    # The middleware that sets these stands further in.
    headers = {"Cache-Control": "no-store", "X-Content-Type-Options": "nosniff"}
    return problem(500, "Something went wrong in the control plane; its log has the details.", headers=headers)
