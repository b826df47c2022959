"""The audit log as it grows, for whoever watches."""

from __future__ import annotations

import re
from dataclasses import dataclass
from datetime import UTC, datetime, timedelta

_EPOCH = datetime(1970, 1, 1, tzinfo=UTC)
_MICROSECOND = timedelta(microseconds=1)
_PLACE = re.compile(r"([0-9]{1,17})\.([0-9a-f-]{36})\.(-?[0-9]{1,10})")


@dataclass(frozen=True, slots=True)
class Transition:
    """One row of the audit log with the task and queue of its job; None once even retention has forgotten them."""

    job_id: str
    seq: int
    at: datetime
    event: str
    from_state: str | None
    to_state: str | None
    attempt: int
    worker: str | None
    task: str | None
    queue: str | None

    @property
    def place(self) -> FeedPlace:
        return FeedPlace(self.at, self.job_id, self.seq)


@dataclass(frozen=True, slots=True, order=True)
class FeedPlace:
    """A place in the log in order of time. Without a job it is before everything of that moment."""

    at: datetime
    job_id: str = "00000000-0000-0000-0000-000000000000"
    seq: int = -1

    @property
    def text(self) -> str:
        """As it stands in an address, or as the id of an event."""
        return f"{(self.at - _EPOCH) // _MICROSECOND}.{self.job_id}.{self.seq}"

    @classmethod
    def of(cls, text: str) -> FeedPlace | None:
        """None where that is no such text."""
        found = _PLACE.fullmatch(text)
        return None if found is None else cls(_EPOCH + int(found[1]) * _MICROSECOND, found[2], int(found[3]))


@dataclass(frozen=True, slots=True)
class FeedPage:
    """What was on the log after a place. `now` is the store's time from before it looked: what commits later may still
    be dated earlier, but nothing of ours stays uncommitted for long."""

    now: datetime
    items: tuple[Transition, ...]
    more: bool


@dataclass(frozen=True, slots=True)
class AuditFilter:
    """Which transitions are wanted: no events are all of them, None is no condition."""

    events: tuple[str, ...] = ()
    queues: tuple[str, ...] | None = None
    task: str | None = None
    worker: str | None = None
    job_id: str | None = None


@dataclass(frozen=True, slots=True)
class AuditPage:
    """A page of the log, the newest first. What is wanted and was not found lies before `looked_back_to`, and the next
    page is that before `next`; without them there is no more.

    With `pruned_since` what lies further back was looked for in the histories of jobs that are still there: the last
    rows of those that were pruned earlier are missing.
    """

    items: tuple[Transition, ...]
    looked_back_to: datetime | None = None
    next: FeedPlace | None = None
    pruned_since: datetime | None = None

    @property
    def more(self) -> bool:
        return self.next is not None
