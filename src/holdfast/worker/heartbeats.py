"""One statement renews every lease that is due; what the answers mean for the jobs is told to `heard`."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, replace

from holdfast.domain.answers import Beat, Beaten, Status
from holdfast.domain.errors import is_away, proves_bad_content
from holdfast.domain.events import Beats, Events
from holdfast.periodic.desk import Desk, Refusal
from holdfast.periodic.part import NEVER
from holdfast.periodic.retrying import Retrying
from holdfast.ports import Store
from holdfast.worker.leases import Held, LeaseBook

BUSY_AGAIN_SECONDS = 1.0
PROGRESS_EVERY_SECONDS = 1.0  # for all jobs together: people look at it, and it must not cost more than that


@dataclass(frozen=True, slots=True)
class _Renewed:
    answers: list[Beaten]
    is_progress_sent: bool = True


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
        self._progress_at = 0.0
        self._desk: Desk[list[Beat], _Renewed] = Desk("heartbeats", lambda beats: _beat(store(), beats), ring)

    def step(self, now: float) -> None:
        answer = self._desk.take()
        if answer is not None:
            for held in self._asked.held:
                held.beating = False
        if isinstance(answer, Refusal):
            again = self._retrying.failed(now, answer.error)
            for held in self._asked.held:
                self._book.beat_again(held, again)
                self._not_told(held)
        elif answer is not None:
            self._retrying.worked(now)
            self._take(answer, now)
        if not self._desk.busy and now >= self._retrying.not_before:
            self._ask_for(self._book.due_beats(now, with_progress=now >= self._progress_at), now)

    def wake_at(self) -> float:
        if self._desk.busy:
            return NEVER
        progress_at = self._progress_at if self._book.progress_waits else NEVER
        return max(min(self._book.next_beat, progress_at), self._retrying.not_before)

    def close(self) -> None:
        self._desk.close()

    def _ask_for(self, due: list[Held], now: float) -> None:
        if not due:
            return
        self._asked = _Asked(now, tuple(due))
        self._progress_at = now + PROGRESS_EVERY_SECONDS
        beats = [held.beat() for held in due]
        for held in due:
            held.progress_waits = False
            held.beating = True
        self._desk.ask(beats)

    def _take(self, renewed: _Renewed, now: float) -> None:
        sent_at, answers = self._asked.sent_at, renewed.answers
        margins = []
        for held, answer in zip(self._asked.held, answers, strict=True):
            margins.append(held.deadline - now)
            # While a task's own transaction holds the row, nobody can take the job: busy is as good as renewed.
            if answer.status is Status.APPLIED or (answer.status is Status.BUSY and held.completing):
                self._book.confirm(held, sent_at)
            # Soon again also then: once that transaction has rolled back, only a renewed lease keeps the reaper away.
            if answer.status is Status.BUSY:
                self._book.beat_again(held, now + min(BUSY_AGAIN_SECONDS, held.beat_every))
                self._not_told(held)
            if not renewed.is_progress_sent:
                self._not_told(held)
            self._heard(held, answer)
        self._events.emit(Beats(len(answers), now - sent_at, min(margins, default=0.0)))

    def _not_told(self, held: Held) -> None:
        """It goes with the next heartbeat, or with the report."""
        held.progress_waits = held.progress is not None


def _beat(store: Store, beats: list[Beat]) -> _Renewed:
    """Progress is only for people to look at, and must cost no job its lease: if the store is there and does not take
    the heartbeats, they are sent without it. It is dropped only if it is proven to be the cause."""
    try:
        return _Renewed(store.heartbeat(beats))
    except Exception as error:
        if is_away(error) or all(beat.progress is None for beat in beats):
            raise
        without = [replace(beat, progress=None) for beat in beats]
        return _Renewed(store.heartbeat(without), is_progress_sent=proves_bad_content(error))
