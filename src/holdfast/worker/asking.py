"""What the jobs in the runners ask for, taken to the store by a few desks and answered.

What one job asks is done in the order it asked, one thing after another; several jobs share the desks in turns. Records
that threads of one job ask for at the same time are written together. A store that is away is asked again while the
attempt goes on; the cache is not, for a job can do without. An ask of an attempt that is over is refused without a
question to the store. Every ask is answered once, for runners count what they have open; one that has more open than
any of ours would is refused the rest.

Nothing here waits: jobs that wait for their turn in a source do so in their runners, and ask again.
"""

from __future__ import annotations

import json
import random
from collections import deque
from collections.abc import Callable
from dataclasses import dataclass, field
from typing import Any

from holdfast.domain.answers import Beat
from holdfast.domain.asks import OF_THE_CACHE, Verb, error_to_json
from holdfast.domain.errors import HoldfastError, InvalidInput, LeaseLost, StoreUnavailable, TooLarge
from holdfast.domain.events import Events, Problem, StoreBack, StoreFailed
from holdfast.periodic.desk import Desk, Refusal
from holdfast.periodic.part import NEVER
from holdfast.runners import frames
from holdfast.runners.frames import Frame
from holdfast.runners.process import RunnerProcess
from holdfast.worker.leases import Held, LeaseBook
from holdfast.worker.serving import MOST_TOGETHER, Serving

DESKS = 2
# Open at a time, of one runner; it keeps well below that by itself (`runners/child/asking.py`).
MOST_ASKS = 256
MOST_BYTES = 16 * 1024 * 1024
FIRST_WAIT_SECONDS = 0.05
LONGEST_WAIT_SECONDS = 1.0
# So often in a row it is no matter of a row that somebody has locked for a moment.
TOLD_AFTER = 3


@dataclass(frozen=True, slots=True)
class _Ask:
    number: int
    verb: Verb
    body: dict[str, Any]
    size: int


@dataclass(frozen=True, slots=True)
class _Open:
    """What one runner has asked and not been answered."""

    asks: int = 0
    bytes: int = 0


@dataclass(slots=True, eq=False)
class _Line:
    """The asks of one attempt, in their order."""

    held: Held
    runner: RunnerProcess
    asks: deque[_Ask] = field(default_factory=deque)
    at_desk: int = 0  # so many of the first are being served
    failures: int = 0
    not_before: float = 0.0

    @property
    def is_over(self) -> bool:
        return self.held.reported or self.held.runner is not self.runner

    def batch(self) -> list[_Ask]:
        """The next ask; of records also those right behind it."""
        found: list[_Ask] = []
        size = 0
        for ask in self.asks:
            size += _size(ask)
            if found and (ask.verb is not Verb.RECORDS or found[0].verb is not Verb.RECORDS or size > MOST_TOGETHER):
                break
            found.append(ask)
        return found


@dataclass(frozen=True, slots=True)
class _Errand:
    line: _Line
    lease: Beat
    asks: list[_Ask]


@dataclass(frozen=True, slots=True)
class _Served:
    """The answers, as frames; fewer than asks if the store went away in between. What nobody has thought of is told."""

    answers: list[bytes]
    away: StoreUnavailable | None = None
    problems: list[str] = field(default_factory=list)


class Asking:
    def __init__(
        self,
        serving: Serving,
        book: LeaseBook,
        worker: str,
        events: Events,
        ring: Callable[[], None],
        spread: Callable[[float, float], float] = random.uniform,
    ) -> None:
        self._serving = serving
        self._book = book
        self._worker = worker
        self._events = events
        self._ring = ring
        self._spread = spread
        self._lines: dict[str, _Line] = {}
        self._open: dict[RunnerProcess, _Open] = {}
        self._desks: list[Desk[_Errand, _Served]] = []
        self._errands: dict[int, _Errand] = {}
        self._away_since: float | None = None

    def __len__(self) -> int:
        return sum(len(line.asks) for line in self._lines.values())

    # what runners say

    def hear(self, runner: RunnerProcess, frame: Frame) -> None:
        lease_id, number = frame.get("id"), frame.get("number")
        if not isinstance(lease_id, str) or type(number) is not int:
            self._events.emit(Problem("an ask of a runner", f"it names no attempt and number: {str(frame)[:200]}"))
            return
        held = self._book.get(lease_id)
        if held is None or held.runner is not runner or held.reported:
            runner.answer(_refused(lease_id, number, _over()))
            return
        try:
            ask = _Ask(number, Verb(frame["verb"]), dict(frame["body"]), len(json.dumps(frame["body"])))
        except (KeyError, TypeError, ValueError) as error:
            runner.answer(_refused(lease_id, number, InvalidInput("ask", f"cannot be read ({error!r})")))
            return
        open_ = self._open.get(runner) or _Open()
        if open_.asks >= MOST_ASKS or open_.bytes + ask.size > MOST_BYTES:
            rule = f"a runner may have {MOST_ASKS} asks of {MOST_BYTES:,} bytes open at a time; wait for answers"
            runner.answer(_refused(lease_id, number, TooLarge(str(ask.verb), rule, MOST_BYTES)))
            return
        self._open[runner] = _Open(open_.asks + 1, open_.bytes + ask.size)
        line = self._lines.setdefault(lease_id, _Line(held, runner))
        line.asks.append(ask)

    # a part of the supervisor

    def step(self, now: float) -> None:
        if not self._lines and not self._errands:
            return
        for index, desk in enumerate(self._desks):
            if (answer := desk.take()) is not None:
                self._take(self._errands.pop(index), answer, now)
        for lease_id in [lease_id for lease_id, line in self._lines.items() if line.is_over]:
            self._refuse_rest(self._lines.pop(lease_id))
        self._hand_out(now)

    def wake_at(self) -> float:
        if len(self._errands) == DESKS:
            return NEVER
        return min((line.not_before for line in self._waiting()), default=NEVER)

    def close(self) -> None:
        for desk in self._desks:
            desk.close()

    def _waiting(self) -> list[_Line]:
        return [line for line in self._lines.values() if line.asks and not line.at_desk]

    def _hand_out(self, now: float) -> None:
        due = deque(line for line in self._waiting() if now >= line.not_before)
        for index in range(DESKS):
            if not due:
                return
            if index in self._errands:
                continue
            if index == len(self._desks):  # the first job that asks opens them: most workers need none
                self._desks.append(Desk(f"asks-{index + 1}", self._serve, self._ring))
            line = due.popleft()
            lease = Beat(line.held.job.job_id, line.held.job.attempt, line.held.job.lease_token, self._worker)
            self._errands[index] = errand = _Errand(line, lease, line.batch())
            line.at_desk = len(errand.asks)
            self._desks[index].ask(errand)

    def _take(self, errand: _Errand, answer: _Served | Refusal, now: float) -> None:
        line = errand.line
        line.at_desk = 0
        lease_id = line.held.id
        if isinstance(answer, Refusal):  # not the store's: what goes wrong there is an answer
            refusals = [_refused(lease_id, ask.number, answer.error) for ask in errand.asks]
            answer = _Served(refusals, problems=[repr(answer.error)])
        for problem in answer.problems:
            job = line.held.job
            self._events.emit(Problem("serving what a job asked for", problem, None, job.job_id, job.attempt))
        for frame in answer.answers:
            self._answer(line, line.asks.popleft(), frame)
        if answer.away is not None:
            self._wait(line, answer.away, now)
        elif answer.answers:
            line.failures, line.not_before = 0, 0.0
            self._store_is_there(now)
        if line.is_over:
            self._refuse_rest(line)
        if lease_id in self._lines:  # to the end: the others' turn comes first
            del self._lines[lease_id]
            if line.asks:
                self._lines[lease_id] = line

    def _refuse_rest(self, line: _Line) -> None:
        """What is at a desk gets its answer from there."""
        while len(line.asks) > line.at_desk:
            ask = line.asks.pop()
            self._answer(line, ask, _refused(line.held.id, ask.number, _over()))

    def _answer(self, line: _Line, ask: _Ask, frame: bytes) -> None:
        open_ = self._open.pop(line.runner)
        if open_.asks > 1:
            self._open[line.runner] = _Open(open_.asks - 1, open_.bytes - ask.size)
        line.runner.answer(frame)

    def _wait(self, line: _Line, away: StoreUnavailable, now: float) -> None:
        wait = min(LONGEST_WAIT_SECONDS, FIRST_WAIT_SECONDS * 2**line.failures)
        line.failures = min(line.failures + 1, 20)
        line.not_before = now + self._spread(wait / 2, wait)
        if line.failures >= TOLD_AFTER and self._away_since is None:
            self._away_since = now
            self._events.emit(StoreFailed("asks", str(away)))

    def _store_is_there(self, now: float) -> None:
        if self._away_since is not None:
            self._events.emit(StoreBack("asks", now - self._away_since))
            self._away_since = None

    # at a desk, in its thread

    def _serve(self, errand: _Errand) -> _Served:
        if len(errand.asks) > 1:
            together = self._serve_together(errand)
            if together is not None:
                return together
        served = _Served([])
        for ask in errand.asks:
            try:
                served.answers.append(self._serve_one(errand, ask, served.problems))
            except StoreUnavailable as away:
                return _Served(served.answers, away, served.problems)
        return served

    def _serve_together(self, errand: _Errand) -> _Served | None:
        """None: something is wrong with one of them, and the others must not suffer."""
        try:
            values = self._serving.write_together(errand.lease, [ask.body for ask in errand.asks])
        except StoreUnavailable as away:
            return _Served([], away)
        except LeaseLost as lost:  # of all of them, and once is enough to have it on record
            return _Served([_refused(errand.line.held.id, ask.number, lost) for ask in errand.asks])
        except Exception:
            return None
        asks = zip(errand.asks, values, strict=True)
        return _Served([_answered(errand.line.held.id, ask.number, value) for ask, value in asks])

    def _serve_one(self, errand: _Errand, ask: _Ask, problems: list[str]) -> bytes:
        lease_id = errand.line.held.id
        try:
            value = self._serving.serve(errand.lease, ask.verb, ask.body)
        except StoreUnavailable as away:
            if ask.verb not in OF_THE_CACHE:
                raise
            return _refused(lease_id, ask.number, away)
        except HoldfastError as error:
            return _refused(lease_id, ask.number, error)
        except Exception as error:
            problems.append(f"{ask.verb}: {type(error).__name__}: {error}")
            return _refused(lease_id, ask.number, error)
        return _answered(lease_id, ask.number, value)


def _over() -> LeaseLost:
    return LeaseLost("the attempt that asks is over")


def _answered(lease_id: str, number: int, value: Any) -> bytes:
    return frames.encode("answer", id=lease_id, number=number, value=value)


def _refused(lease_id: str, number: int, error: Exception) -> bytes:
    return frames.encode("answer", id=lease_id, number=number, error=error_to_json(error))


def _size(ask: _Ask) -> int:
    records = ask.body.get("records")
    return len(records) if isinstance(records, list) else 1
