"""One statement renews every lease that is due; what the answers mean for the jobs is told to `heard`."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace

from holdfast.domain.answers import Beat, Beaten, Status
from holdfast.domain.errors import InvalidInput
from holdfast.domain.events import Beats, Events
from holdfast.ports import Store
from holdfast.worker.desk import Desk, Refusal
from holdfast.worker.leases import Held, LeaseBook
from holdfast.worker.part import NEVER
from holdfast.worker.retrying import Retrying

BUSY_AGAIN_SECONDS = 1.0
PROGRESS_EVERY_SECONDS = 1.0


@dataclass(frozen=True, slots=True)
class _Asked:
    sent_at: float
    held: tuple[Held, ...]


class Heartbeats:
    def __init__(
        self,
        store: Callable[[], Store],
        book: LeaseBook,
        events: Events,
        ring: Callable[[], None],
        heard: Callable[[Held, Beaten], None],
        retrying: Retrying,
    ) -> None:
        self._book = book
        self._events = events
        self._heard = heard
        self._retrying = retrying
        self._asked = _Asked(0.0, ())
        self._desk: Desk[list[Beat], list[Beaten]] = Desk("heartbeats", lambda beats: _beat(store(), beats), ring)

    def step(self, now: float) -> None:
        answer = self._desk.take()
        if isinstance(answer, Refusal):
            again = self._retrying.failed(now, answer.error)
            for held in self._asked.held:
                self._book.beat_again(held, again)
        elif answer is not None:
            self._retrying.worked(now)
            self._take(answer, now)
        if not self._desk.busy and now >= self._retrying.not_before and (due := self._book.due_beats(now)):
            self._ask(due, now)

    def wake_at(self) -> float:
        return NEVER if self._desk.busy else max(self._book.next_beat, self._retrying.not_before)

    def close(self) -> None:
        self._desk.close()

    def _ask(self, due: list[Held], now: float) -> None:
        self._asked = _Asked(now, tuple(due))
        beats = [held.beat() for held in due]
        for held in due:
            held.progress_waits = False
        self._desk.ask(beats)

    def _take(self, answers: Sequence[Beaten], now: float) -> None:
        sent_at = self._asked.sent_at
        margins = []
        for held, answer in zip(self._asked.held, answers, strict=True):
            margins.append(held.deadline - now)
            # While a task's own transaction holds the row, nobody can take the job: busy is as good as renewed.
            if answer.status is Status.APPLIED or (answer.status is Status.BUSY and held.completing):
                self._book.confirm(held, sent_at)
            # Soon again also then: once that transaction has rolled back, only a renewed lease keeps the reaper away.
            if answer.status is Status.BUSY:
                self._book.beat_again(held, now + min(BUSY_AGAIN_SECONDS, held.beat_every))
            self._heard(held, answer)
        self._events.emit(Beats(len(answers), now - sent_at, min(margins, default=0.0)))


def _beat(store: Store, beats: list[Beat]) -> list[Beaten]:
    try:
        return store.heartbeat(beats)
    except InvalidInput:
        # Some task's progress cannot be stored. It is only for people to look at, and must cost nobody a lease.
        return store.heartbeat([replace(beat, progress=None) for beat in beats])
