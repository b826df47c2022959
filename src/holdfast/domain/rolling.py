"""From the events of some minutes to the rows of the roll-up, purely.

The store counts equal events together (`Happened`); here they are added up by kind and name, with the depth of the
queues as it was at the end. A minute can be computed any number of times: the last time counts.
"""

from __future__ import annotations

import json
from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass, field
from datetime import datetime, timedelta
from typing import TYPE_CHECKING, Any

from holdfast.domain.activity import COUNTS, Kind
from holdfast.domain.lifecycle import Event
from holdfast.domain.looks import readable_looks

if TYPE_CHECKING:
    from holdfast.domain.views import QueueView

MINUTE = timedelta(minutes=1)
# A minute is computed once more when nobody's transaction that touched it is likely to be open any longer.
FINAL_AFTER = timedelta(seconds=60)
FIRST_LOOK_BACK = timedelta(hours=1)
KEPT = timedelta(days=8)
PERIOD_SECONDS = 8.0  # shorter than the chore's: who looks a moment too early would come a whole period later
IDLE_SECONDS = 60.0  # the same while nothing happens: somebody should still look how much waits
# So much of the log is read by one statement: little while nobody knows how much happens in that time, then as much as
# was quick. The server finds a span by looking through all that is too new for its index, too: no shorter ones.
SHORTEST_SPAN, LONGEST_SPAN = timedelta(seconds=5), timedelta(minutes=15)
LONGEST_READ_SECONDS = 1.0
_GROWS = 8.0
# The roll-up rests so many times as long as it worked.
REST_TIMES = 30.0

COUNTED_AS: dict[str, str] = {
    Event.ENQUEUED: "enqueued",
    Event.CLAIMED: "started",
    Event.SUCCEEDED: "succeeded",
    Event.FAILED: "failed",
    Event.RETRY_SCHEDULED: "retried",
    Event.CRASHED: "retried",
    Event.LEASE_LOST: "lost",
    Event.CANCELLED: "cancelled",
    Event.SNOOZED: "snoozed",
    Event.RELEASED: "released",
}


def minute_of(moment: datetime) -> datetime:
    return moment.replace(second=0, microsecond=0)


@dataclass(frozen=True, slots=True)
class Progress:
    """What a pass leaves for the next: the first minute that is not final, what it cost, how much of the log to read at
    once, and whether that goes on beyond it."""

    first: datetime
    seconds: float = 0.0
    span: timedelta = SHORTEST_SPAN
    behind: bool = False

    @property
    def period(self) -> float:
        rest = REST_TIMES * self.seconds
        return rest if self.behind else max(PERIOD_SECONDS, rest)


def beginning(progress: Progress | None, now: datetime) -> datetime:
    """The minute to compute first. What would be forgotten at once is left out, and so is what a clock that was set
    back has not reached yet."""
    first = now - FIRST_LOOK_BACK if progress is None else progress.first
    return minute_of(min(max(first, now - KEPT), now))


def next_span(span: timedelta, cost_seconds: float) -> timedelta:
    """How much to read at once, where so much has cost that."""
    wanted = span * min(_GROWS, LONGEST_READ_SECONDS / max(cost_seconds, 0.001))
    return min(max(wanted, SHORTEST_SPAN), LONGEST_SPAN)


def piece(since: datetime, end: datetime, span: timedelta) -> datetime:
    """Until when to read at once: whole minutes, or a part of one. The end is that of a minute."""
    if span < MINUTE or since != minute_of(since):
        return min(since + span, minute_of(since) + MINUTE)
    return min(since + MINUTE * (span // MINUTE), end)


def first_not_final(computed_until: datetime, now: datetime) -> datetime:
    return min(computed_until, minute_of(now - FINAL_AFTER - MINUTE) + MINUTE)


@dataclass(frozen=True, slots=True)
class Happened:
    """So many events of one minute that are alike. `place` is that of a wait (of a claim) or of a run (of what ended
    one) in its histogram; None or less than 0: not known."""

    minute: datetime
    queue: str | None
    task: str | None
    source: str | None
    event: str
    place: int | None
    ends_run: bool
    count: int

    def speaks_of(self) -> Iterator[tuple[Kind, str]]:
        yield Kind.ALL, ""
        for kind, name in ((Kind.QUEUE, self.queue), (Kind.TASK, self.task), (Kind.SOURCE, self.source)):
            if name is not None:
                yield kind, name


@dataclass(slots=True)
class _Row:
    counts: dict[str, int] = field(default_factory=lambda: dict.fromkeys(COUNTS, 0))
    depth: dict[str, Any] = field(default_factory=dict)
    wait: list[int] = field(default_factory=list)
    run: list[int] = field(default_factory=list)


class Tally:
    """Rows of the roll-up while they are added up."""

    def __init__(self) -> None:
        self._rows: dict[tuple[Kind, str, datetime], _Row] = {}
        self.events = 0

    def add(self, happened: Happened) -> None:
        self.events += happened.count
        column = COUNTED_AS.get(happened.event)
        if column is None:
            return
        for kind, name in happened.speaks_of():
            row = self._row(kind, name, happened.minute)
            row.counts[column] += happened.count
            if happened.place is not None and happened.place >= 0:
                if happened.event == Event.CLAIMED:
                    _place(row.wait, happened.place, happened.count)
                elif happened.ends_run:
                    _place(row.run, happened.place, happened.count)

    def add_cache(self, minute: datetime, text: str | None, count: int) -> None:
        """What so many attempts told of their sources' caches, each this: as JSON, where anything may stand."""
        for source, (hits, misses) in _looks(text).items():
            for kind, name in ((Kind.ALL, ""), (Kind.SOURCE, source)):
                row = self._row(kind, name, minute)
                row.counts["cache_hits"] += hits * count
                row.counts["cache_misses"] += misses * count

    def look(self, minute: datetime, now: datetime, queues: Iterable[QueueView], known: Iterable[str]) -> None:
        """`known` are queues that had a depth earlier in this minute: they may be empty by now."""
        depths = {queue.name: _depth(queue, now) for queue in queues}
        for name in known:
            depths.setdefault(name, _EMPTY)
        for name, depth in depths.items():
            if any(depth.values()) or (Kind.QUEUE, name, minute) in self._rows or name in set(known):
                self._row(Kind.QUEUE, name, minute).depth = dict(depth)
        oldest = [depth["oldest_seconds"] for depth in depths.values() if depth["oldest_seconds"] is not None]
        self._row(Kind.ALL, "", minute).depth = {
            **{name: sum(depth[name] for depth in depths.values()) for name in ("ready", "scheduled", "running")},
            "oldest_seconds": max(oldest, default=None),
        }

    def rows(self) -> list[dict[str, Any]]:
        """As they are stored, but for the form of `minute`."""
        return [
            {
                "kind": str(kind),
                "name": name,
                "minute": minute,
                **{column: min(count, 2**31 - 1) for column, count in row.counts.items()},
                **row.depth,
                "wait": row.wait or None,
                "run": row.run or None,
            }
            for (kind, name, minute), row in self._rows.items()
        ]

    def _row(self, kind: Kind, name: str, minute: datetime) -> _Row:
        return self._rows.setdefault((kind, name, minute), _Row())


_EMPTY: Mapping[str, Any] = {"ready": 0, "scheduled": 0, "running": 0, "oldest_seconds": None}


def _depth(queue: QueueView, now: datetime) -> Mapping[str, Any]:
    oldest = None if queue.oldest_ready_at is None else max(0.0, (now - queue.oldest_ready_at).total_seconds())
    return {
        "ready": queue.ready,
        "scheduled": queue.scheduled,
        "running": queue.running,
        "oldest_seconds": oldest,
    }


def _place(counts: list[int], place: int, count: int) -> None:
    counts.extend([0] * (place + 1 - len(counts)))
    counts[place] += count


def _looks(text: str | None) -> dict[str, tuple[int, int]]:
    try:
        return readable_looks(json.loads(text) if text is not None else None)
    except (ValueError, RecursionError):
        return {}
