"""`holdfast verify`: check every history there is, and say what is wrong with which job."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator
from dataclasses import dataclass, field
from typing import Protocol

from holdfast.domain.history import History, HistoryChecker, Reference, Violation, judge_reference
from holdfast.domain.retention import Watermark

PROGRESS_EVERY = 10_000  # events

Progress = Callable[[int, int], None]


class References(Protocol):
    """What speaks of jobs that are gone, and how far histories have been retired by the time one asks."""

    def __iter__(self) -> Iterator[Reference]: ...

    def retired(self) -> Watermark | None: ...


@dataclass(frozen=True, slots=True)
class Verdict:
    """`jobs` counts every job that has a row or a history, so pruned ones too; `retired` are those that have neither
    any more."""

    ok: bool
    jobs: int
    events: int
    violations: tuple[Violation, ...]
    unlisted: int = 0  # violations beyond the number asked for
    retired: Watermark | None = None


@dataclass(slots=True)
class _Findings:
    most: int
    found: int = 0
    listed: list[Violation] = field(default_factory=list)

    def add(self, violations: Iterable[Violation]) -> None:
        for violation in violations:
            self.found += 1
            if len(self.listed) < self.most:
                self.listed.append(violation)


def verify(
    histories: Iterable[History],
    on_progress: Progress | None = None,
    max_violations: int = 1000,
    references: References | None = None,
) -> Verdict:
    """`on_progress` is told the jobs and events read so far, now and then and at the end."""
    jobs = events = reported = 0
    findings = _Findings(max_violations)
    for history in histories:
        checker = HistoryChecker(history.job_id)
        for event in history.events:
            checker.feed(event)
        findings.add(checker.finish(history.row))
        jobs += 1
        events += checker.events
        if on_progress is not None and events - reported >= PROGRESS_EVERY:
            reported = events
            on_progress(jobs, events)
    if on_progress is not None:
        on_progress(jobs, events)
    retired = None
    if references is not None:
        findings.add(_vanished(references))
        retired = references.retired()
    unlisted = findings.found - len(findings.listed)
    return Verdict(findings.found == 0, jobs, events, tuple(findings.listed), unlisted, retired)


def _vanished(references: References) -> Iterator[Violation]:
    """The watermark only ever rises. So it is read again when something seems to be wrong, and not before."""
    through: str | None = None
    last = ""
    for reference in references:
        if judge_reference(reference, through) is None or reference.job_id == last:
            continue
        through = _through(references.retired())
        violation = judge_reference(reference, through)
        if violation is not None:
            last = reference.job_id
            yield violation


def _through(retired: Watermark | None) -> str | None:
    return None if retired is None else retired.through.isoformat(timespec="microseconds").replace("+00:00", "Z")
