"""From what a control plane answers to the errors that a store raises."""

from __future__ import annotations

import json
from http import HTTPStatus
from typing import Any

from holdfast.domain.errors import (
    ConfigurationError,
    Conflict,
    HoldfastError,
    InvalidInput,
    NotAllowed,
    NotFound,
    RequestFailed,
    StoreUnavailable,
    TooLarge,
)
from holdfast.domain.lifecycle import State


class NotDone(StoreUnavailable):
    """Not now; and whatever was asked for was certainly not done."""


class AccessRefused(NotDone):
    """To a worker a token that is refused is like a store that is away."""


class WrongState(Conflict):
    """An operator's word that does not fit the job as it is."""

    def __init__(self, detail: str, state: State | None, *, key_taken: bool) -> None:
        super().__init__("job", detail)
        self.state = state
        self.key_taken = key_taken


# The server, or a proxy before it, is busy or away.
_NOT_NOW = frozenset((408, 421, 425, 502, 503, 504))
_LONGEST_DETAIL = 1_000


def error_for(status: int, body: bytes, place: str, *, waits: bool) -> HoldfastError:
    """`place` is the control plane as people may see it. With `waits`, a token that is not accepted is waited out as
    if the store were away: a running job must not end because an operator is changing tokens.

    Only a control plane's own problem says something about the request. Any other response was sent by something
    between, or by a control plane that failed, and means that the store is unavailable."""
    problem = _problem(status, body)
    detail = str((problem or {}).get("detail") or _phrase(status))[:_LONGEST_DETAIL]
    match status:
        case 401:
            advice = "give one that is valid there: --token or HOLDFAST_TOKEN, made by `holdfast tokens create`"
            said = f"{place} does not accept the token ({detail}); {advice}"
            return AccessRefused(said) if waits else ConfigurationError(said)
        case 413:
            return _too_large(problem or {}, detail, place)
        case 429:
            return NotDone(f"{place} limits the rate of requests: {detail}")
        case 503 if problem is not None and problem.get("failed") == "request":
            return RequestFailed(f"{place} answered {status}: {detail}")
        case _ if status in _NOT_NOW:
            return StoreUnavailable(f"{place} does not answer now ({status}): {detail}")
        case _ if status >= 500:
            return RequestFailed(f"{place} answered {status}: {detail}")
        case _ if problem is None:
            return RequestFailed(
                f"{place} answered {status} ({detail}), and not as a control plane does: check the URL, and any"
                " proxy before it"
            )
        case _:
            return _refusal(status, problem, detail, place)


def _refusal(status: int, problem: dict[str, Any], detail: str, place: str) -> HoldfastError:
    match status:
        case 403:
            advice = "give a token with the scope or the queues that it takes"
            return NotAllowed(f"{place} does not allow this to the token ({detail}); {advice}")
        case 404:
            return NotFound(detail)
        case 409:
            return _conflict(problem, detail)
        case 422 if "field" in problem:
            return InvalidInput(*_field_and_rule(problem, detail))
        case _:
            return HoldfastError(f"{place} answered {status}: {detail}")


def retry_after(value: str | None) -> float:
    """Seconds; a date, which nobody of ours sends, counts as none."""
    return float(value) if value is not None and value.isascii() and value.isdecimal() else 0.0


def _conflict(problem: dict[str, Any], detail: str) -> Conflict:
    if "state" not in problem:
        return Conflict(*_field_and_rule(problem, detail))
    known = problem["state"] in set(State)
    return WrongState(detail, State(problem["state"]) if known else None, key_taken="key" in str(problem.get("title")))


def _too_large(problem: dict[str, Any], detail: str, place: str) -> TooLarge:
    """One value of the request, or the request itself; a proxy on the way gives no limit."""
    given = problem.get("limit_bytes")
    limit = given if isinstance(given, int) else None
    if "field" in problem:
        return TooLarge(*_field_and_rule(problem, detail), limit)
    return TooLarge("body", f"{place} takes no request that large ({detail}); send less at once", limit)


def _problem(status: int, body: bytes) -> dict[str, Any] | None:
    """The problem that a control plane sent (`serve/problems.py`); None if it did not."""
    try:
        found = json.loads(body)
    except (ValueError, RecursionError):
        return None
    if not isinstance(found, dict) or found.get("status") != status:
        return None
    if found.get("type") != "about:blank" or "instance" in found:  # a gateway's own RFC 9457 problem
        return None
    return found if isinstance(found.get("title"), str) and isinstance(found.get("detail"), str) else None


def _field_and_rule(problem: dict[str, Any], detail: str) -> tuple[str, str]:
    field = str(problem.get("field") or "request")
    return field, detail.removeprefix(f"{field}: ")


def _phrase(status: int) -> str:
    return HTTPStatus(status).phrase if status in set(HTTPStatus) else "no reason given"
