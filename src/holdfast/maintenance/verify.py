"""`holdfast verify`: check every history there is, and say what is wrong with which job."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator
from dataclasses import dataclass, field
from typing import Protocol

from holdfast.domain.history import History, HistoryChecker, Reference, Violation, judge_reference
from holdfast.domain.retention import Watermark

PROGRESS_EVERY = 10_000  # events


@dataclass(frozen=True, slots=True)
class Progress:
    """How far it is: so many events are read. `total` is how many there were when it began; None when nobody counted
    them, and when there have turned out to be more (the store is in use)."""

    jobs: int
    events: int
    total: int | None = None

    @property
    def done(self) -> int:
        return self.events


OnProgress = Callable[[Progress], None]


class Stopped(Exception):
    """Somebody asked for it to stop. Of histories that were not all read there is no verdict."""

    def __init__(self, progress: Progress) -> None:
        super().__init__(f"stopped after {progress.jobs:,} jobs and {progress.events:,} events")
        self.progress = progress


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
    on_progress: OnProgress | None = None,
    max_violations: int = 1000,
    references: References | None = None,
    *,
    total: int | None = None,
    stop: Callable[[], bool] | None = None,
) -> Verdict:
    """`on_progress` is told how far it is, now and then and at the end; of `total` events, if they were counted. Once
    `stop` says yes (it is asked between two jobs, and may be `threading.Event().is_set`) it raises `Stopped`."""
    reading = _Reading(on_progress, total, stop)
    findings = _Findings(max_violations)
    for history in histories:
        checker = HistoryChecker(history.job_id)
        for event in history.events:
            checker.feed(event)
        findings.add(checker.finish(history.row))
        reading.read(checker.events)
    reading.tell()
    retired = None
    if references is not None:
        findings.add(_vanished(references, reading))
        retired = references.retired()
    unlisted = findings.found - len(findings.listed)
    return Verdict(findings.found == 0, reading.jobs, reading.events, tuple(findings.listed), unlisted, retired)


class _Reading:
    """How much was read, who is told, and whether to go on."""

    def __init__(self, on_progress: OnProgress | None, total: int | None, stop: Callable[[], bool] | None) -> None:
        self._on_progress = on_progress
        self._total = total
        self._stop = stop
        self._told = 0
        self.jobs = 0
        self.events = 0

    def read(self, events: int) -> None:
        self.jobs += 1
        self.events += events
        if self.events - self._told >= PROGRESS_EVERY:
            self.tell()
        self.check()

    def tell(self) -> None:
        self._told = self.events
        if self._on_progress is not None:
            self._on_progress(self._progress())

    def check(self) -> None:
        if self._stop is not None and self._stop():
            raise Stopped(self._progress())

    def _progress(self) -> Progress:
        counted = self._total is not None and self.events <= self._total
        return Progress(self.jobs, self.events, self._total if counted else None)


def _vanished(references: References, reading: _Reading) -> Iterator[Violation]:
    """The watermark only ever rises. So it is read again when something seems to be wrong, and not before."""
    through: str | None = None
    last = ""
    for reference in references:
        reading.check()
        if judge_reference(reference, through) is None or reference.job_id == last:
            continue
        through = _through(references.retired())
        violation = judge_reference(reference, through)
        if violation is not None:
            last = reference.job_id
            yield violation


def _through(retired: Watermark | None) -> str | None:
    return None if retired is None else retired.through.isoformat(timespec="microseconds").replace("+00:00", "Z")
