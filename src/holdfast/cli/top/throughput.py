"""How many jobs come in and are done with, second by second, from the audit log.

Transactions commit out of order: what is dated earlier may be seen later. So every look reaches back a little, and what
was counted is not counted again. One look reads a bounded number of events. Where more happen than that, the figures
are said to be at least what they are.
"""

from __future__ import annotations

from collections import Counter
from dataclasses import dataclass
from datetime import datetime, timedelta
from typing import Protocol

from holdfast.domain.feed import FeedPage, FeedPlace, Transition
from holdfast.domain.lifecycle import TERMINAL, Event

WINDOW_SECONDS = 60
PAGE = 1_000
MOST_PAGES = 5  # in one look
REACH_BACK = timedelta(seconds=1)
# How far the first look reaches: a busy store has more in a minute than one look may read.
FIRST_LOOKS = (WINDOW_SECONDS, 10, 2)
_ENDS = frozenset(str(state) for state in TERMINAL)


class Fed(Protocol):
    def feed(self, after: FeedPlace | None, limit: int = ...) -> FeedPage: ...


@dataclass(frozen=True, slots=True)
class Throughput:
    """Of the last `seconds`; `done` (whatever the outcome), `failed` of those, and `enqueued` of each second, the
    oldest first."""

    seconds: float
    done: tuple[int, ...]
    failed: tuple[int, ...]
    enqueued: tuple[int, ...]
    at_least: bool = False

    def per_second(self, counts: tuple[int, ...]) -> float:
        return sum(counts) / self.seconds if self.seconds > 0 else 0.0


class Meter:
    def __init__(self) -> None:
        self._since: datetime | None = None  # what was counted is complete from here on
        self._now: datetime | None = None
        self._lost_at: datetime | None = None
        self._counts: dict[str, Counter[int]] = {"done": Counter(), "failed": Counter(), "enqueued": Counter()}
        self._seen: dict[tuple[str, int], datetime] = {}

    @property
    def now(self) -> datetime | None:
        """The store's time at the last look."""
        return self._now

    def look(self, store: Fed) -> Throughput:
        if self._now is None:
            self._begin(store)
        else:
            self._now, whole = self._read(store, self._now - REACH_BACK)
            self._lost_at = self._lost_at if whole else self._now
        self._forget()
        return self._measured()

    def _begin(self, store: Fed) -> None:
        now = store.feed(None).now
        for seconds in FIRST_LOOKS:
            since = now - timedelta(seconds=seconds)
            self._since = since
            self._now, whole = self._read(store, since)
            if whole:
                return
            self._seen.clear()
            for counts in self._counts.values():
                counts.clear()
        self._now, _whole = self._read(store, now - REACH_BACK)
        self._since, self._lost_at = now - REACH_BACK, now

    def _read(self, store: Fed, since: datetime) -> tuple[datetime, bool]:
        """The store's time before it looked, and whether it saw everything."""
        place, now = FeedPlace(since), None
        for _page in range(MOST_PAGES):
            page = store.feed(place, PAGE)
            now = now or page.now
            for item in page.items:
                self._count(item)
            if not page.more:
                return now, True
            if not page.items:
                break
            place = page.items[-1].place
        assert now is not None
        return now, False

    def _count(self, item: Transition) -> None:
        if (item.job_id, item.seq) in self._seen:
            return
        self._seen[item.job_id, item.seq] = item.at
        second = int(item.at.timestamp())
        if item.event == Event.ENQUEUED:
            self._counts["enqueued"][second] += 1
        elif item.to_state in _ENDS:
            self._counts["done"][second] += 1
            self._counts["failed"][second] += item.event == Event.FAILED

    def _forget(self) -> None:
        assert self._now is not None
        edge = self._now - 3 * REACH_BACK
        self._seen = {key: at for key, at in self._seen.items() if at >= edge}
        oldest = int(self._now.timestamp()) - WINDOW_SECONDS - 1
        for counts in self._counts.values():
            for second in [second for second in counts if second < oldest]:
                del counts[second]

    def _measured(self) -> Throughput:
        """The last second has only just begun: `seconds` counts what has passed of it."""
        assert self._now is not None
        assert self._since is not None
        end = int(self._now.timestamp())
        begin = max(end - WINDOW_SECONDS + 1, int(self._since.timestamp()))
        lost = self._lost_at is not None and self._lost_at.timestamp() >= begin
        done, failed, enqueued = (
            tuple(self._counts[name][second] for second in range(begin, end + 1))
            for name in ("done", "failed", "enqueued")
        )
        passed = self._now.timestamp() - max(begin, self._since.timestamp())
        return Throughput(max(passed, 1.0), done, failed, enqueued, lost)
