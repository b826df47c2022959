"""Move the breakers of sources by how jobs ended, in the transaction that ends them.

Most endings are successes in a calm source: they need no lock, and all but one a second no write. What moves a breaker
takes the source's row. If that stays locked for half a second (somebody's own transaction has it), the move is given
up: a streak that is one short costs little, an outcome that cannot be recorded costs a job. For the same reason a row
in which somebody has typed nonsense is read as well as it can be.
"""

from __future__ import annotations

import json
import time
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from datetime import datetime
from typing import Any

from holdfast.domain.breaker import Ending, Happened, Rules, Standing, Success, matters, move
from holdfast.domain.jsonable import to_json
from holdfast.domain.sources import PausedBy, understood
from holdfast.domain.spec import encode_json
from holdfast.stores import rows
from holdfast.stores.database import Row, Transaction
from holdfast.stores.ids import new_ids
from holdfast.stores.statements import breaker as sql
from holdfast.stores.types import to_text

PATIENCE_SECONDS = 0.5
FIRST_PAUSE_SECONDS = 0.002
LONGEST_PAUSE_SECONDS = 0.016


@dataclass(frozen=True, slots=True)
class Seen:
    """A source's breaker as it is in the store, at the store's time."""

    name: str
    standing: Standing
    rules: Rules
    now: datetime


def settle_sources(
    transaction: Transaction, endings: Mapping[str, Sequence[Ending]], *, patience: float = PATIENCE_SECONDS
) -> None:
    """`endings` by the name of the source; of one that has no row nothing is kept."""
    if not endings:
        return
    found = transaction.rows(sql.READ, {"names": json.dumps(sorted(endings))})
    give_up_at = time.monotonic() + patience
    for seen in sorted((seen_in(row, transaction.dialect) for row in found), key=lambda seen: seen.name):
        said = [ending for ending in endings[seen.name] if matters(seen.standing, seen.rules, ending, seen.now)]
        if said:
            # Just to note a success nobody waits: the next one notes it.
            just_noted = seen.standing.failure_streak == 0 and all(isinstance(ending, Success) for ending in said)
            locked = lock(transaction, seen.name, 0.0 if just_noted else give_up_at)
            if locked is not None:
                _apply(transaction, locked, endings[seen.name])


def settle_failing_sources(transaction: Transaction, endings: Mapping[str, Sequence[Ending]]) -> None:
    """In a transaction of the user's: only what may close a breaker, at one try, because the row stays locked until
    the user's commit."""
    if not endings:
        return
    for row in transaction.rows(sql.READ, {"names": json.dumps(sorted(endings))}):
        seen = seen_in(row, transaction.dialect)
        locked = lock(transaction, seen.name, 0.0) if seen.standing.failure_streak > 0 else None
        if locked is not None:
            _apply(transaction, locked, endings[seen.name])


def lock(transaction: Transaction, name: str, give_up_at: float) -> Seen | None:
    """None when somebody else has its row, still, or it is not there."""
    pause = FIRST_PAUSE_SECONDS
    while True:
        found = transaction.rows(sql.LOCK, {"name": name})
        if found:
            return seen_in(found[0], transaction.dialect)
        if time.monotonic() + pause > give_up_at:
            return None
        time.sleep(pause)
        pause = min(pause * 2, LONGEST_PAUSE_SECONDS)


def _apply(transaction: Transaction, seen: Seen, endings: Sequence[Ending]) -> None:
    standing = seen.standing
    for ending in endings:
        moved = move(standing, seen.rules, ending, seen.now)
        standing = moved.standing
        if moved.happened is not None:
            record(transaction, seen.name, moved.happened)
    if standing != seen.standing:
        transaction.run(sql.WRITE, {"name": seen.name, **_stored(standing)})


def record(transaction: Transaction, source: str, happened: Happened) -> None:
    given = {
        "id": new_ids(1)[0],
        "source": source,
        "event": happened.event,
        "detail": encode_json(to_json(happened.detail)),
    }
    transaction.run(sql.RECORD, given)


def _stored(standing: Standing) -> dict[str, Any]:
    def moment(value: datetime | None) -> str | None:
        return None if value is None else to_text(value)

    return {
        "failure_streak": standing.failure_streak,
        "paused_until": moment(standing.paused_until),
        "paused_by": None if standing.paused_by is None else str(standing.paused_by),
        "last_success_at": moment(standing.last_success_at),
        "last_failure_at": moment(standing.last_failure_at),
    }


def seen_in(row: Row, dialect: str) -> Seen:
    name, streak, paused, by, succeeded, failed, threshold, pause, only, ignores, permanent, now = row
    moment = rows.moment(now)
    assert moment is not None
    return Seen(
        name,
        Standing(
            understood("failure_streak", streak),
            rows.some_moment(paused),
            who_paused(by),
            rows.some_moment(succeeded),
            rows.some_moment(failed),
        ),
        Rules(
            understood("breaker_threshold", threshold),
            float(understood("breaker_pause_seconds", pause)),
            codes(only, dialect),
            codes(ignores, dialect) or (),
            bool(permanent),
        ),
        moment,
    )


def who_paused(stored: str | None) -> PausedBy | None:
    return PausedBy(stored) if stored in set(PausedBy) else None


def codes(stored: Any, dialect: str) -> tuple[str, ...] | None:
    """An operator may have typed anything there; no outcome may hang on that."""
    try:
        value = rows.parsed(stored, dialect)
    except ValueError:
        return None
    return tuple(str(code) for code in value) if isinstance(value, list) else None
