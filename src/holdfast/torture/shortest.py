"""The histories that show what is broken: events and notes of a job in order of time, a line each.

A time is that since the run began. Of a lease the first eight digits are shown, as in the notes.
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Callable, Sequence
from dataclasses import asdict
from pathlib import Path
from typing import Any, NamedTuple

from holdfast.torture.evidence import notes_about
from holdfast.torture.moments import moment
from holdfast.torture.notes import Acknowledged, Intended, Noted, Unavailable
from holdfast.torture.results import Broken

MOST_LINES = 120
_LEASE_DIGITS = 8
_JOB_DIGITS = 8

Events = Callable[[str], Sequence[Sequence[Any]]]


class Suspect(NamedTuple):
    """What shows a broken rule: the histories of these jobs, the one that is named first; `length` is how much that is
    to read."""

    rule: str
    detail: str
    jobs: tuple[str, ...] = ()
    length: int = 0


class Line(NamedTuple):
    at: float
    is_note: bool  # of the same moment, the event comes first
    number: int
    text: str


def shown(suspects: Sequence[Suspect], events: Events, notes: Path, began_at: float) -> tuple[Broken, ...]:
    """`events` reads the audit rows of a job. The notes are read once, for all of them."""
    by_job: dict[str, list[Line]] = defaultdict(list)
    wanted = dict.fromkeys(job_id for suspect in suspects for job_id in suspect.jobs)
    for job_id in wanted:
        by_job[job_id] += [_event_line(began_at, *row) for row in events(job_id)]
    for number, (job_id, noted) in enumerate(notes_about(notes, wanted)):
        by_job[job_id].append(_note_line(noted, number, began_at))
    return tuple(_broken(suspect, by_job) for suspect in suspects)


def _broken(suspect: Suspect, by_job: dict[str, list[Line]]) -> Broken:
    several = len(suspect.jobs) > 1
    lines = sorted(
        line._replace(text=f"{job_id[-_JOB_DIGITS:]}  {line.text}" if several else line.text)
        for job_id in suspect.jobs
        for line in by_job[job_id]
    )
    return Broken(suspect.rule, suspect.detail, next(iter(suspect.jobs), None), _cut([line.text for line in lines]))


def _cut(lines: list[str]) -> tuple[str, ...]:
    """Of a long history its beginning and its end."""
    if len(lines) <= MOST_LINES:
        return tuple(lines)
    half = MOST_LINES // 2
    return (*lines[:half], f"… {len(lines) - 2 * half:,} lines …", *lines[-half:])


def _event_line(
    began_at: float,
    seq: int,
    at_text: str,
    event: str,
    source: str | None,
    target: str | None,
    attempt: int,
    worker: str | None,
    lease: str | None,
    detail: str | None,
) -> Line:
    at = moment(at_text)
    parts = (
        at_text if at is None else _since(at, began_at),
        f"{event}: {source or '∅'} → {target or '∅'}",
        f"attempt {attempt}",
        worker,
        None if lease is None else f"lease {lease[:_LEASE_DIGITS]}",
        detail,
    )
    return Line(began_at if at is None else at, False, seq, _joined(parts))


def _note_line(noted: Noted, number: int, began_at: float) -> Line:
    parts = (_since(noted.at, began_at), f"note of {noted.by}: {type(noted.note).__name__.lower()}", _said(noted))
    return Line(noted.at, True, number, _joined(parts))


def _said(noted: Noted) -> str:
    fields = asdict(noted.note)
    fields.pop("job_id", None)
    if isinstance(noted.note, Intended | Acknowledged | Unavailable):
        count = len(fields.pop("job_ids"))
        fields |= {"in a batch of": count} if count > 1 else {}
    if "lease" in fields:
        fields["lease"] = fields["lease"][:_LEASE_DIGITS]
    return ", ".join(f"{name} {value}" for name, value in fields.items() if value is not None)


def _since(at: float, began_at: float) -> str:
    return f"{at - began_at:+.3f} s"


def _joined(parts: Sequence[str | None]) -> str:
    return "  ".join(part for part in parts if part)
