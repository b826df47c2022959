"""A job's life laid out over time: every attempt a bar on its worker's lane, everything else a mark.

Pure, and drawn by others: the command line on a grid of characters, the dashboard as SVG. Every place is a share of the
width, from 0.0 (the first thing known) to 1.0 (the last, or now while the job is not over); multiply it by columns or
pixels.

The audit log is what is drawn. `attempts` only adds what it does not say (errors, usage), and `refusals` are marks too.
A log that was tampered with is drawn as well as it can be: a time that runs backwards is drawn where the event before
it is, and a claim without an end ends at the next one.
"""

from __future__ import annotations

from bisect import bisect_right
from collections.abc import Sequence
from dataclasses import dataclass, replace
from datetime import datetime, timedelta
from typing import Any

from holdfast.domain.job import Attempt, AuditEvent
from holdfast.domain.lifecycle import OUTCOMES, TERMINAL, Event
from holdfast.domain.time_axis import Axis, Piece, Tick, axis_of
from holdfast.domain.views import Refusal

REFUSED = "refused"
_OVER = frozenset(str(state) for state in TERMINAL)

# For those who see no colours, or have none: each ending and each mark also has a letter of its own.
LETTERS: dict[str, str] = {
    Event.ENQUEUED: "E",
    Event.REPLACED: "U",
    Event.CLAIMED: "|",
    Event.SUCCEEDED: "S",
    Event.RETRY_SCHEDULED: "R",
    Event.CRASHED: "C",
    Event.LEASE_LOST: "L",
    Event.FAILED: "F",
    Event.RELEASED: "G",
    Event.SNOOZED: "Z",
    Event.CANCEL_REQUESTED: "!",
    Event.CANCELLED: "X",
    Event.REQUEUED: "Q",
    Event.PRUNED: "P",
    REFUSED: "N",
}
WORDS: dict[str, str] = {
    Event.REPLACED: "updated",
    Event.RETRY_SCHEDULED: "failed, will retry",
    Event.LEASE_LOST: "lease lost",
    Event.RELEASED: "given back",
    Event.CANCEL_REQUESTED: "cancel asked",
    REFUSED: "not accepted (refused)",
}


def word(kind: str) -> str:
    """What a mark or an ending is called in a legend."""
    return WORDS.get(kind, kind)


@dataclass(frozen=True, slots=True)
class Mark:
    """One event, or the first or last of some equal refusals. `attempt` is 0 before the first."""

    at: datetime
    place: float
    kind: str
    attempt: int
    worker: str | None
    seq: int | None = None  # of the event; a refusal has none
    detail: dict[str, Any] | None = None
    refusal: Refusal | None = None


@dataclass(frozen=True, slots=True)
class Segment:
    """One attempt. `end` is None while it runs: then it is drawn up to now, and open."""

    attempt: int
    worker: str | None
    begin: datetime
    end: datetime | None
    start: float
    stop: float
    outcome: str | None  # the event that ended it; None while it runs, and where the log does not say
    facts: Attempt | None = None

    @property
    def running(self) -> bool:
        return self.end is None


@dataclass(frozen=True, slots=True)
class Wait:
    """A time in which nobody runs the job, because of `since`; the job is in `state` (terminal ones: it is over).
    `due` is when it may be claimed again, where the log says so. `end` is None while it lasts."""

    since: str
    state: str | None
    begin: datetime
    end: datetime | None
    start: float
    stop: float
    due: Tick | None = None

    @property
    def over(self) -> bool:
        return self.state is None or self.state in _OVER


@dataclass(frozen=True, slots=True)
class Lane:
    """What one worker did with the job. `worker` is None for what was typed by hand."""

    worker: str | None
    segments: tuple[Segment, ...]
    marks: tuple[Mark, ...]


@dataclass(frozen=True, slots=True)
class Timeline:
    """`marks` are those of the job itself, while nobody held it; `left_out` the attempts before the first one here."""

    axis: Axis
    lanes: tuple[Lane, ...]
    waits: tuple[Wait, ...]
    marks: tuple[Mark, ...]
    left_out: int = 0

    @property
    def segments(self) -> tuple[Segment, ...]:
        """All attempts, in order."""
        found = [segment for lane in self.lanes for segment in lane.segments]
        return tuple(sorted(found, key=lambda segment: (segment.begin, segment.attempt)))

    @property
    def all_marks(self) -> tuple[Mark, ...]:
        found = [*self.marks, *(mark for lane in self.lanes for mark in lane.marks)]
        return tuple(sorted(found, key=lambda mark: (mark.place, mark.seq or 0)))

    @property
    def kinds(self) -> tuple[str, ...]:
        """Which kinds of marks and endings there are, for a legend."""
        found = {mark.kind for mark in self.all_marks}
        return tuple(kind for kind in LETTERS if kind in found)


def lay_out(
    events: Sequence[AuditEvent],
    attempts: Sequence[Attempt] = (),
    refusals: Sequence[Refusal] = (),
    now: datetime | None = None,
    most_attempts: int | None = None,
) -> Timeline | None:
    """None when there is nothing to draw. `now` is the store's time if it is known; with `most_attempts` only so many
    of the last attempts are drawn, and what came before them is left out."""
    kept, left_out = _last(events, most_attempts)
    if not kept:
        return None
    told = _told_in_order(kept)
    refused = _refused(refusals, kept[0].at if left_out else None)
    spans, waits = _fold(told)
    axis = axis_of(_moments(told, refused, now), lambda piece: _is_run(piece, spans))
    facts = {attempt.attempt: attempt for attempt in attempts}
    segments = [_segment(span, axis, facts) for span in spans]
    outside, inside = _marks(told, refused, axis)
    return Timeline(axis, _lanes(segments, inside), _placed(waits, axis), outside, left_out)


@dataclass(frozen=True, slots=True)
class _Told:
    """An event with the time at which it is drawn, which never runs backwards."""

    event: AuditEvent
    at: datetime

    @property
    def ends_attempt(self) -> bool:
        return self.event.event in OUTCOMES and self.event.attempt > 0 and self.event.from_state == "running"

    @property
    def of_attempt(self) -> bool:
        return self.ends_attempt or self.event.event in (Event.CLAIMED, Event.CANCEL_REQUESTED)


@dataclass(frozen=True, slots=True)
class _Span:
    claim: _Told
    end: datetime | None
    outcome: str | None


def _last(events: Sequence[AuditEvent], most_attempts: int | None) -> tuple[Sequence[AuditEvent], int]:
    claims = [index for index, event in enumerate(events) if event.event == Event.CLAIMED]
    if most_attempts is None or len(claims) <= most_attempts:
        return events, 0
    first = claims[len(claims) - most_attempts] if most_attempts > 0 else len(events)
    return events[first:], len(claims) - most_attempts


def _told_in_order(events: Sequence[AuditEvent]) -> list[_Told]:
    told: list[_Told] = []
    for event in events:
        told.append(_Told(event, max(event.at, told[-1].at) if told else event.at))
    return told


def _fold(told: list[_Told]) -> tuple[list[_Span], list[Wait]]:
    """Who ran it when, and when nobody did. The places of the waits are not known yet."""
    spans: list[_Span] = []
    waits: list[Wait] = []
    claim: _Told | None = None
    for step in told:
        event = step.event
        if event.event == Event.CLAIMED:
            if claim is not None:
                spans.append(_Span(claim, step.at, None))
            claim = step
        elif claim is not None and step.ends_attempt:
            spans.append(_Span(claim, step.at, event.event))
            claim = None
        if waits and waits[-1].end is None:
            waits[-1] = replace(waits[-1], end=step.at)
        if claim is None and event.event != Event.PRUNED:
            waits.append(Wait(event.event, event.to_state, step.at, None, 0.0, 0.0, _due(step)))
    if claim is not None:
        spans.append(_Span(claim, None, None))
    return spans, waits


def _due(step: _Told) -> Tick | None:
    delay = (step.event.detail or {}).get("delay_seconds")
    if isinstance(delay, bool) or not isinstance(delay, int | float) or not 0 < delay < 1e9:
        return None
    return Tick(step.at + timedelta(seconds=delay), 0.0)


def _refused(refusals: Sequence[Refusal], since: datetime | None) -> list[tuple[datetime, Refusal]]:
    """The first and the last of each."""
    moments = [(at, refusal) for refusal in refusals for at in dict.fromkeys((refusal.first_at, refusal.last_at))]
    return [(at, refusal) for at, refusal in moments if since is None or at >= since]


def _moments(told: list[_Told], refused: list[tuple[datetime, Refusal]], now: datetime | None) -> list[datetime]:
    """Everything that has a place of its own, in order, and now unless the job is over."""
    found = {step.at for step in told} | {at for at, _refusal in refused}
    last = told[-1].event
    if now is not None and last.to_state is not None and last.to_state not in _OVER:
        found.add(max(now, max(found)))
    return sorted(found)


def _is_run(piece: Piece, spans: list[_Span]) -> bool:
    """The spans are in order and do not overlap, so it is the last that began by then, or none."""
    index = bisect_right(spans, piece[0], key=lambda span: span.claim.at) - 1
    if index < 0:
        return False
    end = spans[index].end
    return end is None or piece[1] <= end


def _segment(span: _Span, axis: Axis, facts: dict[int, Attempt]) -> Segment:
    event = span.claim.event
    start = axis.place(span.claim.at)
    stop = axis.place(axis.end if span.end is None else span.end)
    known = facts.get(event.attempt)
    return Segment(event.attempt, event.worker, span.claim.at, span.end, start, stop, span.outcome, known)


def _placed(waits: list[Wait], axis: Axis) -> tuple[Wait, ...]:
    """A job that is over waits for nothing; but the time up to what is still marked after that is such a piece too."""
    return tuple(_place_wait(wait, axis) for wait in waits if not (wait.over and wait.begin == axis.end))


def _place_wait(wait: Wait, axis: Axis) -> Wait:
    due = None if wait.due is None or wait.due.at > axis.end else Tick(wait.due.at, axis.place(wait.due.at))
    stop = axis.place(axis.end if wait.end is None else wait.end)
    return replace(wait, start=axis.place(wait.begin), stop=stop, due=due)


def _marks(
    told: list[_Told], refused: list[tuple[datetime, Refusal]], axis: Axis
) -> tuple[tuple[Mark, ...], dict[str | None, list[Mark]]]:
    """Those of the job itself, and those of each worker. An attempt's end is on the lane of who held it, whoever
    recorded it: the reaper has no lane."""
    outside: list[Mark] = []
    inside: dict[str | None, list[Mark]] = {}
    holder: str | None = None
    for step in told:
        event = step.event
        holder = event.worker if event.event == Event.CLAIMED else holder
        worker = holder if step.of_attempt else event.worker
        mark = Mark(event.at, axis.place(step.at), event.event, event.attempt, worker, event.seq, event.detail)
        (inside.setdefault(worker, []) if step.of_attempt else outside).append(mark)
    for at, refusal in refused:
        mark = Mark(at, axis.place(at), REFUSED, refusal.attempt, refusal.worker, refusal=refusal)
        inside.setdefault(refusal.worker, []).append(mark)
    return tuple(outside), inside


def _lanes(segments: list[Segment], marks: dict[str | None, list[Mark]]) -> tuple[Lane, ...]:
    """The workers in the order in which they came into it."""
    by_worker: dict[str | None, list[Segment]] = {}
    for segment in segments:
        by_worker.setdefault(segment.worker, []).append(segment)
    workers = dict.fromkeys([*by_worker, *marks])
    return tuple(
        Lane(
            worker,
            tuple(by_worker.get(worker, ())),
            tuple(sorted(marks.get(worker, ()), key=lambda mark: (mark.place, mark.seq or 0))),
        )
        for worker in workers
    )
