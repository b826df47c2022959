"""The notes of a run by job, in little memory: what each job's clients, operators and processes say of it.

There are several notes a job and hundreds of thousands of jobs. So what is usual is kept as numbers, what is seldom (a
claim over the worker contract, a report, an operator's word) as the note itself, and nothing of when and by whom: that
is read again for the few jobs whose histories are shown.
"""

from __future__ import annotations

import sys
from collections.abc import Collection, Iterator
from dataclasses import dataclass, field
from pathlib import Path
from typing import assert_never

from holdfast.torture.notes import (
    Acknowledged,
    Began,
    Claimed,
    Ended,
    Intended,
    Note,
    Noted,
    Operated,
    Reported,
    Unavailable,
    read_notes,
)


@dataclass(slots=True)
class Told:
    """What was noted of one job."""

    task: str | None = None
    intended: bool = False
    acknowledged: bool = False
    began: tuple[int, ...] = ()  # attempts, each as often as it was noted
    ended: tuple[int, ...] = ()
    claims: tuple[Claimed, ...] = ()
    reports: tuple[Reported, ...] = ()
    operations: tuple[Operated, ...] = ()


@dataclass(slots=True)
class Evidence:
    jobs: dict[str, Told] = field(default_factory=dict)
    acknowledged: int = 0
    executions: int = 0
    unavailable: list[Noted] = field(default_factory=list)

    def add(self, note: Note) -> None:
        match note:
            case Intended(job_ids=job_ids, task=task):
                for job_id in job_ids:
                    told = self._told(job_id)
                    told.task, told.intended = sys.intern(task), True
            case Acknowledged(job_ids=job_ids, task=task):
                for job_id in job_ids:
                    self._acknowledge(self._told(job_id), task)
            case Began():
                self.executions += 1
                self._told(note.job_id).began += (note.attempt,)
            case Ended():
                self._told(note.job_id).ended += (note.attempt,)
            case Claimed():
                self._told(note.job_id).claims += (note,)
            case Reported():
                self._told(note.job_id).reports += (note,)
            case Operated():
                self._told(note.job_id).operations += (note,)
            case Unavailable():  # `gather` keeps it, with its time
                pass
            case _ as never:
                assert_never(never)

    def _told(self, job_id: str) -> Told:
        told = self.jobs.get(job_id)
        if told is None:
            told = self.jobs[job_id] = Told()
        return told

    def _acknowledge(self, told: Told, task: str) -> None:
        """Somebody may be told twice: who asks again is answered again."""
        told.task = told.task or sys.intern(task)
        if not told.acknowledged:
            told.acknowledged = True
            self.acknowledged += 1


def gather(folder: Path) -> Evidence:
    evidence = Evidence()
    for noted in read_notes(folder):
        evidence.add(noted.note)
        if isinstance(noted.note, Unavailable):
            evidence.unavailable.append(noted)
    return evidence


def notes_about(folder: Path, job_ids: Collection[str]) -> Iterator[tuple[str, Noted]]:
    """Every note that speaks of one of these jobs, with the job; of a batch, each of them."""
    wanted = frozenset(job_ids)
    for noted in read_notes(folder) if wanted else ():
        if isinstance(noted.note, Intended | Acknowledged | Unavailable):
            for job_id in wanted.intersection(noted.note.job_ids):
                yield job_id, noted
        elif noted.note.job_id in wanted:
            yield noted.note.job_id, noted
