"""`holdfast verify`: check every history there is, and say what is wrong with which job."""

from __future__ import annotations

from collections.abc import Callable, Iterable
from dataclasses import dataclass

from holdfast.domain.history import History, HistoryChecker, Violation

PROGRESS_EVERY = 10_000  # events

Progress = Callable[[int, int], None]


@dataclass(frozen=True, slots=True)
class Verdict:
    """`jobs` counts every job that has a row or a history, so pruned ones too."""

    ok: bool
    jobs: int
    events: int
    violations: tuple[Violation, ...]
    unlisted: int = 0  # violations beyond the number asked for


def verify(histories: Iterable[History], on_progress: Progress | None = None, max_violations: int = 1000) -> Verdict:
    """`on_progress` is told the jobs and events read so far, now and then and at the end."""
    jobs = events = found = reported = 0
    listed: list[Violation] = []
    for history in histories:
        checker = HistoryChecker(history.job_id)
        for event in history.events:
            checker.feed(event)
        violations = checker.finish(history.row)
        jobs += 1
        events += checker.events
        if violations:
            found += len(violations)
            listed.extend(violations[: max_violations - len(listed)])
        if on_progress is not None and events - reported >= PROGRESS_EVERY:
            reported = events
            on_progress(jobs, events)
    if on_progress is not None:
        on_progress(jobs, events)
    return Verdict(found == 0, jobs, events, tuple(listed), found - len(listed))
