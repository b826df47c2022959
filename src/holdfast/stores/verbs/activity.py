"""Read the roll-up for charts: series without gaps, whatever is missing."""

from __future__ import annotations

import json
from collections.abc import Iterable, Sequence
from datetime import UTC, datetime
from itertools import zip_longest
from typing import Any

from holdfast.domain.activity import (
    COUNTS,
    DEPTHS,
    NO_RUNS,
    NO_WAITS,
    RUN_BOUNDS,
    WAIT_BOUNDS,
    Activity,
    Kind,
    Spread,
    Step,
)
from holdfast.domain.errors import InvalidInput
from holdfast.domain.names import check_integer
from holdfast.domain.rolling import KEPT
from holdfast.stores import rows
from holdfast.stores.database import Database, Row
from holdfast.stores.statements import activity as sql
from holdfast.stores.statements import feed
from holdfast.stores.statements.words import SQLITE
from holdfast.stores.types import to_text

MOST_NAMES = 500
MOST_SECONDS = 2 * KEPT.total_seconds()
_MINUTE = 60


def activity(
    database: Database, kind: Kind, seconds: float, names: Sequence[str] | None, step_seconds: float
) -> Activity:
    wanted = _kind(kind)
    step = _whole_minutes(step_seconds)
    asked = [""] if wanted is Kind.ALL else names
    with database.reading() as transaction:
        now = rows.moment(transaction.rows(feed.NOW)[0][0])
        assert now is not None
        now = now.astimezone(UTC)
        starts = _starts(now, _span(seconds), step)
        since = datetime.fromtimestamp(starts[0], UTC)
        given: dict[str, Any] = {
            "kind": str(wanted),
            "since": to_text(since) if database.dialect == SQLITE else since,
            "step": step,
        }
        among = {"most": MOST_NAMES} if asked is None else {"names": json.dumps(_askable(asked))}
        found = transaction.rows(sql.series(asked is not None), {**given, **among})
        looks: dict[int, Any] = {}
        if wanted is Kind.QUEUE:
            looks = {
                int(start): at
                for start, at in transaction.rows(sql.LOOKS, {name: given[name] for name in ("since", "step")})
            }
    known: dict[str, dict[int, Step]] = {name: {} for name in asked or ()}
    for row in found:
        start = int(row[1])
        known.setdefault(row[0], {})[start] = _step(row, looks.get(start), database.dialect)
    empty = {start: _nothing(start, looks.get(start)) for start in starts}
    return Activity(
        now,
        float(step),
        {name: tuple(steps.get(start, empty[start]) for start in starts) for name, steps in sorted(known.items())},
    )


def _kind(kind: str) -> Kind:
    try:
        return Kind(kind)
    except ValueError:
        raise InvalidInput("kind", f"must be among {', '.join(Kind)}, got {kind!r}") from None


def _whole_minutes(step_seconds: float) -> int:
    step = int(step_seconds)
    if step != step_seconds or step < _MINUTE or step % _MINUTE:
        raise InvalidInput("step_seconds", f"must be a whole number of minutes, got {step_seconds!r} seconds")
    return check_integer(step, "step_seconds", _MINUTE, int(MOST_SECONDS))


def _span(seconds: float) -> float:
    if not 0 < seconds <= MOST_SECONDS:
        raise InvalidInput("seconds", f"must be more than 0 and at most {MOST_SECONDS:.0f}, got {seconds!r}")
    return seconds


def _starts(now: datetime, seconds: float, step: int) -> range:
    """The beginnings of the steps: on the clock, so that the same minutes are merged whenever one asks."""
    last = int(now.timestamp()) // step * step
    return range(int(now.timestamp() - seconds) // step * step, last + 1, step)


def _askable(names: Iterable[str]) -> list[str]:
    """Without what no store can hold: of such a name there is nothing to tell."""
    return [name for name in names if "\x00" not in name and name.encode("utf-8", "ignore").decode() == name]


def _step(row: Row, looked_at: Any, dialect: str) -> Step:
    """A queue that was not there when somebody looked was empty."""
    counts = dict(zip(COUNTS, map(int, row[3 : 3 + len(COUNTS)]), strict=True))
    depths = dict(zip(DEPTHS, row[3 + len(COUNTS) : -2], strict=True))
    if looked_at is not None and (row[2] is None or row[2] < looked_at):
        depths = _EMPTY
    wait, run = (rows.parsed(value, dialect) for value in row[-2:])
    return Step(
        at=datetime.fromtimestamp(int(row[1]), UTC),
        **counts,
        **depths,
        wait=_spread(wait, NO_WAITS, WAIT_BOUNDS),
        run=_spread(run, NO_RUNS, RUN_BOUNDS),
    )


_EMPTY: dict[str, Any] = {"ready": 0, "scheduled": 0, "running": 0, "oldest_seconds": None}


def _nothing(start: int, looked_at: Any) -> Step:
    at = datetime.fromtimestamp(start, UTC)
    return Step(at) if looked_at is None else Step(at, **_EMPTY)


def _spread(histograms: Any, none: Spread, bounds: tuple[float, ...]) -> Spread:
    if not histograms:
        return none
    return Spread(bounds, tuple(map(sum, zip_longest(*histograms, fillvalue=0))))


def forget_minutes(database: Database, keep_seconds: float, limit: int) -> int:
    wanted = {"keep": float(keep_seconds), "limit": check_integer(limit, "limit", 1, 1_000_000)}
    with database.statement() as transaction:
        return len(transaction.rows(sql.FORGET, wanted))
