"""Read times of Postgres in UTC, whatever the session's time zone is.

Through a pooler a session keeps its time zone. East of UTC the server then writes the last hours of 9999 as the year
10000, and west of it the first hours of the year 1 as 1 BC: psycopg refuses both, and with them the whole result. A
time that Python cannot hold (`infinity`, by hand) is read as the last or first one that it can.
"""

from __future__ import annotations

import re
from datetime import UTC, datetime, timedelta
from typing import Any

import psycopg
from psycopg import adapters
from psycopg.abc import AdaptContext, Buffer
from psycopg.adapt import Loader
from psycopg.pq import Format

FIRST, LAST = datetime.min.replace(tzinfo=UTC), datetime.max.replace(tzinfo=UTC)
_CYCLE_YEARS = 400  # after which the calendar repeats itself
_CYCLE = timedelta(days=146_097)
_FORM = re.compile(r"(\d+)-(\d\d)-(\d\d) (\d\d):(\d\d):(\d\d)(?:\.(\d+))?([+-])(\d\d)(?::(\d\d))?(?::(\d\d))?( BC)?")

_Usual: Any = adapters.get_loader(adapters.types["timestamptz"].oid, Format.TEXT)


class UtcLoader(Loader):
    """psycopg's own loader first: it is compiled, and cannot be subclassed."""

    def __init__(self, oid: int, context: AdaptContext | None = None) -> None:
        super().__init__(oid, context)
        self._load = _Usual(oid, context).load

    def load(self, data: Buffer) -> datetime:
        try:
            found: datetime = self._load(data).astimezone(UTC)
        except (psycopg.DataError, OverflowError, ValueError):
            return read_in_utc(bytes(data).decode())
        return found


def read_in_utc(text: str) -> datetime:
    """The moment that Postgres wrote in its ISO style; the nearest one that Python can hold."""
    found = _FORM.fullmatch(text)
    if found is None:
        return FIRST if text.startswith("-") else LAST
    year = 1 - int(found[1]) if found[12] else int(found[1])
    cycles = (year - 2000) // _CYCLE_YEARS
    month, day, hour, minute, second = (int(part) for part in found.group(2, 3, 4, 5, 6))
    micro = int((found[7] or "").ljust(6, "0"))
    offset = timedelta(hours=int(found[9]), minutes=int(found[10] or 0), seconds=int(found[11] or 0))
    near = datetime(year - cycles * _CYCLE_YEARS, month, day, hour, minute, second, micro, UTC)
    near += -offset if found[8] == "+" else offset
    try:
        return near + cycles * _CYCLE
    except OverflowError:
        return LAST if cycles > 0 else FIRST
