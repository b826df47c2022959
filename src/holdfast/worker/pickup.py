"""Claiming: how many, of which tasks, and how long to wait when there is nothing.

One claim is under way at a time. A worker with nothing to do asks for all its tasks in one query. In a rush it asks
for one kind of runner at a time, as many as that kind has room for, and quick tasks some way ahead (see `pace`).
"""

from __future__ import annotations

import random
from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace
from enum import Enum, auto

from holdfast.domain.answers import Brought
from holdfast.domain.events import Claims, Events
from holdfast.domain.job import Claimed
from holdfast.domain.manifest import Kind
from holdfast.periodic.desk import Desk, Refusal
from holdfast.ports import Store
from holdfast.worker.patience import Patience

FIRST_WAIT_SECONDS = 0.1
SHORTEST_WAIT_SECONDS = 0.01
FAIR_SECONDS = 0.5  # so long a rush may pass over tasks that are not quick, or of another kind
MOST_AT_ONCE = 500
WORTH_WAITING_SECONDS = 60.0  # for the token of a source, or the end of its pause, before a worker has drained


class Found(Enum):
    WAITING = auto()  # no answer yet
    FULL = auto()  # no room for more
    SOME = auto()
    FEW = auto()  # less than there is room for: there is hardly more
    NOTHING = auto()


@dataclass(frozen=True, slots=True)
class Ask:
    tasks: tuple[str, ...]
    limit: int
    ahead: bool = False  # only quick tasks, more than there are slots
    wait_seconds: float = 0.0  # for something to claim, where the store can wait for us


@dataclass(frozen=True, slots=True)
class Room:
    """What one kind of runner could take: its tasks, its empty slots, and how many quick jobs beyond them, of `most`
    that it may hold so."""

    tasks: Sequence[str]
    slots: int
    quick: Sequence[str]
    ahead: int
    most: int = 0


def choose(rooms: dict[Kind, Room], rush: bool) -> Ask | None:
    """The next question, if there is room for an answer."""
    free = {kind: room for kind, room in rooms.items() if room.slots > 0}
    if rush:
        for room in rooms.values():
            # Ask ahead in decent portions: a query for every single job that ended would cost more than it brings.
            if room.quick and room.ahead > 0 and (room.slots + room.ahead) * 2 >= room.most:
                return Ask(tuple(room.quick), min(MOST_AT_ONCE, room.slots + room.ahead), ahead=True)
        if free:
            widest = max(free.values(), key=lambda room: room.slots)
            return Ask(tuple(widest.tasks), min(MOST_AT_ONCE, widest.slots))
    if not free:
        return None
    tasks = tuple(task for room in free.values() for task in room.tasks)
    return Ask(tasks, min(MOST_AT_ONCE, *(room.slots for room in free.values()), MOST_AT_ONCE))


class Pickup:
    def __init__(
        self,
        store: Callable[[], Store],
        worker: str,
        queues: tuple[str, ...] | None,
        poll_seconds: float,
        rooms: Callable[[], dict[Kind, Room]],
        taken: Callable[[list[Claimed], float], None],
        events: Events,
        ring: Callable[[], None],
        patience: Patience | None = None,
    ) -> None:
        self._rooms = rooms
        self._taken = taken
        self._events = events
        self._patience = patience
        self._longest = poll_seconds
        self._wait = 0.0
        self._waited = 0.0  # in the last claim, at the store
        self._again_in: float | None = None  # as of the last answer: a limited source lets something in then
        self._rush = False
        self._fair_at = 0.0
        self._asked: Ask | None = None
        self._asked_at = 0.0
        self.answered_at = 0.0  # the last time the store answered, also with nothing
        # As of the last answer, for any of our tasks; also what waits for a source that is closed for long.
        self.nothing_due = False

        def claim(ask: Ask) -> Brought:
            if patience is not None:
                return patience.claim(ask.wait_seconds, worker, ask.limit, queues, ask.tasks)
            jobs = store().claim(worker, ask.limit, queues, ask.tasks)
            return Brought(jobs, again_in=jobs.again_in)

        self._desk: Desk[Ask, Brought] = Desk("claims", claim, ring)

    @property
    def busy(self) -> bool:
        return self._desk.busy

    @property
    def has_answer(self) -> bool:
        """Of the store, that nobody has heard yet."""
        return self._desk.has_answer

    def poll(self, now: float) -> Found:
        """Ask, or look whether there is an answer. A store that cannot answer raises here."""
        if self._asked is None:
            return self._ask(now)
        answer = self._desk.take()
        if answer is None:
            return Found.WAITING
        asked, self._asked = self._asked, None
        if isinstance(answer, Refusal):
            raise answer.error
        return self._heard(asked, answer, now)

    def _ask(self, now: float) -> Found:
        rooms = self._rooms()
        fair = now >= self._fair_at  # now and then everything is asked for, however long the rush lasts
        if self._rush and fair and any(room.quick and room.slots == 0 and room.ahead > 0 for room in rooms.values()):
            return Found.FULL  # soon there is a slot for any task: what lies ahead is quick
        ask = choose(rooms, self._rush and not fair)
        if ask is None:
            return Found.FULL
        if fair or not self._rush:
            self._fair_at = now + FAIR_SECONDS
        if self._patience is not None and not self._rush and self._is_for_all(ask):
            # Only a question for everything may wait: the answer to another must not keep us from asking for the rest.
            ask = replace(ask, wait_seconds=self._patience.seconds)
        self._asked, self._asked_at = ask, now
        self._desk.ask(ask)
        return Found.WAITING

    def _is_for_all(self, ask: Ask) -> bool:
        return len(ask.tasks) == sum(len(room.tasks) for room in self._rooms().values())

    def _heard(self, asked: Ask, brought: Brought, now: float) -> Found:
        jobs = brought.jobs
        self.answered_at = now
        self._waited = now - self._asked_at if asked.wait_seconds else 0.0
        self._again_in = brought.again_in
        waits = brought.again_in is not None and brought.again_in <= WORTH_WAITING_SECONDS
        self.nothing_due = not jobs and not waits and self._is_for_all(asked)
        due = tuple((job.queue, job.due_seconds) for job in jobs if job.due_seconds is not None)
        # Without the time that a long poll waited for something to claim.
        self._events.emit(Claims(len(jobs), max(0.0, now - self._asked_at - brought.late_seconds), due))
        full = len(jobs) == asked.limit
        was_rush, self._rush = self._rush, full or (self._rush and asked.ahead and bool(jobs))
        if jobs:
            self._wait = 0.0
            # From the moment we asked, or were heard: the leases may have begun right then.
            self._taken(jobs, self._asked_at + brought.late_seconds)
            return Found.SOME if full or self._rush else Found.FEW
        # In a rush only some of the tasks were asked for: the others come next.
        return Found.SOME if was_rush else Found.NOTHING

    def collect(self, now: float) -> None:
        """Only take what was asked for before, so that it can be given back."""
        if self._asked is not None:
            self.poll(now)

    def next_wait(self) -> float:
        """Longer each time nothing was found, up to the poll interval, and never in step with other workers; but no
        longer than until work that waits for a source's token, or the end of its pause, can be had."""
        first = min(FIRST_WAIT_SECONDS, self._longest)
        self._wait = min(self._longest, self._wait * 1.5 if self._wait else first)
        wait = max(0.0, self._wait * random.uniform(0.9, 1.0) - self._waited)
        return wait if self._again_in is None else min(wait, max(SHORTEST_WAIT_SECONDS, self._again_in))

    def stop_waiting(self) -> None:
        """For good; what a claim brings that is under way still counts."""
        if self._patience is not None:
            self._patience.stop()

    def close(self) -> None:
        self._desk.close()
