"""How long an outside system wants to be left alone: its Retry-After, in whatever form it came to hand.

What cannot be read counts as a minute: that it asked at all is certain.
"""

from __future__ import annotations

import math
import time
from datetime import UTC, timedelta
from typing import Any

from holdfast.domain import durations
from holdfast.domain.errors import InvalidInput

DEFAULT_SECONDS = 60.0
SHORTEST_SECONDS = 1.0
LONGEST_SECONDS = 86_400.0
_STATUSES = (429, 503)


def seconds_of(when: Any) -> float:
    """Of seconds, of the header's text (seconds or a date), or of a response or an exception that has the header."""
    now = None
    if not isinstance(when, int | float | str | timedelta):
        headers = _headers(when)
        when, now = _header(headers, "Retry-After"), _date(_header(headers, "Date"))
    return min(max(_seconds(when, now), SHORTEST_SECONDS), LONGEST_SECONDS)


def asked_for(error: BaseException) -> float | None:
    """The seconds, if the exception carries the answer 429 or 503 of a server that said when to come back."""
    if not isinstance(error, Exception):
        return None
    try:
        response = getattr(error, "response", None)
        response = error if response is None else response
        status = getattr(response, "status_code", getattr(response, "code", None))
        if isinstance(status, int) and status in _STATUSES and _header(_headers(response), "Retry-After") is not None:
            return seconds_of(response)
    except Exception:  # whatever an object of the user's own does when it is looked at
        return None
    return None


def _seconds(when: Any, now: float | None) -> float:
    if isinstance(when, timedelta):
        return when.total_seconds()
    if isinstance(when, str):
        text = when.strip()
        at = None if text.isascii() and text.isdecimal() else _date(text)
        if at is not None:
            return at - (time.time() if now is None else now)  # by the clock that wrote the date, if it said
        when = _number(text)
    is_number = isinstance(when, int | float) and not isinstance(when, bool)
    try:
        return float(when) if is_number and not math.isnan(when) else DEFAULT_SECONDS
    except OverflowError:  # an integer of hundreds of digits
        return LONGEST_SECONDS


def _number(text: str) -> float | None:
    """Seconds, or a duration as people write it."""
    try:
        return durations.seconds(text)
    except InvalidInput:
        return None


def _date(text: Any) -> float | None:
    if not isinstance(text, str):
        return None
    from email.utils import parsedate_to_datetime  # not needed by most runners

    try:
        moment = parsedate_to_datetime(text)
        return (moment if moment.tzinfo is not None else moment.replace(tzinfo=UTC)).timestamp()
    except (TypeError, ValueError, IndexError, OverflowError):
        return None


def _headers(thing: Any) -> Any:
    response = getattr(thing, "response", None)
    return getattr(thing if response is None else response, "headers", None)


def _header(headers: Any, name: str) -> str | None:
    """Libraries have mappings that ignore case; a plain dict is searched."""
    try:
        found = headers.get(name)
        if found is None:
            found = next((value for key, value in headers.items() if str(key).lower() == name.lower()), None)
    except (AttributeError, TypeError):
        return None
    return None if found is None else str(found)
