"""What a job says and how far it is, as it goes, through all its attempts, until it ends."""

from __future__ import annotations

import time
from collections.abc import Iterator
from dataclasses import dataclass
from datetime import UTC, datetime, timedelta
from typing import Any, Protocol

from holdfast.domain.job import Job
from holdfast.domain.lifecycle import TERMINAL, State
from holdfast.domain.logs import Gaps, LogLine, LostLines

LOOK_EVERY_SECONDS = 0.5
# The outcome and the last lines travel apart: lines may still arrive after the job has ended. Once none has come for
# this long, none will.
LAST_WORDS_SECONDS = 2.0
_LONG_AGO = timedelta(seconds=30)  # by our own clock, which only decides whether to wait for last words
PAGE = 1_000


@dataclass(frozen=True, slots=True)
class Progress:
    attempt: int
    value: Any


@dataclass(frozen=True, slots=True)
class Ended:
    """There is no more to come: the job has ended or, if one attempt was asked for, that attempt."""

    job: Job


Followed = LogLine | LostLines | Progress | Ended


class LogStore(Protocol):
    def job(self, job_id: str) -> Job: ...

    def logs(
        self, job_id: str, attempt: int | None = None, after: tuple[int, int] | None = None, limit: int = 1000
    ) -> list[LogLine]: ...


def said(store: LogStore, job_id: str, attempt: int | None = None) -> Iterator[LogLine | LostLines]:
    """What there is now, page by page: a job may have said more than fits a memory."""
    gaps = Gaps()
    after: tuple[int, int] | None = None
    while page := store.logs(job_id, attempt, after, PAGE):
        yield from _with_gaps(page, gaps)
        after = (page[-1].attempt, page[-1].number)


def follow(store: LogStore, job_id: str, attempt: int | None = None) -> Iterator[Followed]:
    """What there is, then what comes. It ends with `Ended`, and nothing else ends it."""
    gaps = Gaps()
    after: tuple[int, int] | None = None
    progress: Any = None
    heard_at = time.monotonic()
    while True:
        job = store.job(job_id)  # before its lines: what was said before this moment is read after it
        if job.progress is not None and job.progress != progress:
            progress = job.progress
            yield Progress(job.attempt, progress)
        page = store.logs(job_id, attempt, after, PAGE)
        yield from _with_gaps(page, gaps)
        if page:
            after = (page[-1].attempt, page[-1].number)
        if page or not _is_over(job, attempt):
            heard_at = time.monotonic()
        elif _ended_long_ago(job) or time.monotonic() - heard_at >= LAST_WORDS_SECONDS:
            yield Ended(job)
            return
        if len(page) < PAGE:
            time.sleep(LOOK_EVERY_SECONDS)


def _with_gaps(page: list[LogLine], gaps: Gaps) -> Iterator[LogLine | LostLines]:
    for line in page:
        if (lost := gaps.before(line)) is not None:
            yield lost
        yield line


def _is_over(job: Job, attempt: int | None) -> bool:
    if job.state in TERMINAL:
        return True
    if attempt is None or job.attempt < attempt:
        return False
    return job.attempt > attempt or job.state is not State.RUNNING


def _ended_long_ago(job: Job) -> bool:
    return job.finished_at is not None and datetime.now(UTC) - job.finished_at > _LONG_AGO
