"""Heartbeats, reports, logs and announcements over HTTP, in batches that a control plane takes.

Everything here may arrive twice: a heartbeat renews, a report that was heard before gets the same answer again, and a
log line has a number.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from itertools import groupby
from typing import Any, TypeVar

from holdfast.domain.answers import Beat, Beaten, Settled
from holdfast.domain.logs import LogLine
from holdfast.domain.manifest import TaskInfo
from holdfast.domain.outcome import Report
from holdfast.domain.records import to_json
from holdfast.domain.schedule import Declaration, ScheduleFailure
from holdfast.domain.views import WorkerRow
from holdfast.domain.wire import beat_to_json, beaten_from_json, report_to_json, settled_from_json
from holdfast.remote.cleaning import NOBODY, clean_beat, clean_line, clean_report, label
from holdfast.remote.line import Line, encode

WORKER = "/internal/worker"
MOST_AT_ONCE = 500
MOST_LINES = 1_000
# Half of what a control plane takes: one result that is large, and what stands around it, still fit.
MOST_BYTES = 4 * 1024 * 1024

Item = TypeVar("Item")


class Work:
    _line: Line

    def heartbeat(self, beats: Sequence[Beat]) -> list[Beaten]:
        answers: list[Beaten] = []
        for worker, batch in _by_worker([clean_beat(beat) for beat in beats], lambda beat: beat.worker):
            for some, body in _portions(batch, beat_to_json, MOST_AT_ONCE):
                found = self._line.post(f"{WORKER}/heartbeats", {"worker_id": worker, "beats": body})["answers"]
                answers += [beaten_from_json(beat.job_id, answer) for beat, answer in zip(some, found, strict=True)]
        return answers

    def settle(self, reports: Sequence[Report]) -> list[Settled]:
        answers: list[Settled] = []
        for worker, batch in _by_worker([clean_report(report) for report in reports], lambda report: report.worker):
            for some, body in _portions(batch, report_to_json, MOST_AT_ONCE):
                found = self._line.post(f"{WORKER}/reports", {"worker_id": worker, "reports": body})["answers"]
                answers += [
                    settled_from_json(report.job_id, report.attempt, answer)
                    for report, answer in zip(some, found, strict=True)
                ]
        return answers

    def append_logs(self, lines: Sequence[LogLine], worker: str = NOBODY) -> None:
        for _some, body in _portions([clean_line(line) for line in lines], LogLine.to_json, MOST_LINES):
            self._line.post(f"{WORKER}/logs", {"worker_id": worker, "lines": body})

    def announce(self, tasks: Sequence[TaskInfo], worker: str = NOBODY) -> None:
        self._line.post(f"{WORKER}/announce", {"worker_id": worker, "tasks": [task.to_json() for task in tasks]})

    def announce_schedules(self, declared: Sequence[Declaration], worker: str = NOBODY) -> tuple[ScheduleFailure, ...]:
        answer = self._line.post(f"{WORKER}/announce", {"worker_id": worker, "schedules": _declared(declared)})
        return tuple(ScheduleFailure(failure["schedule"], failure["message"]) for failure in answer["failures"])

    def keep_schedules(self, declared: Sequence[Declaration], worker: str = NOBODY) -> None:
        self._line.post(f"{WORKER}/announce", {"worker_id": worker, "kept": _declared(declared)})

    def keep_worker(self, row: WorkerRow) -> None:
        self._line.post(f"{WORKER}/worker", to_json(row))


def _declared(declared: Sequence[Declaration]) -> list[dict[str, Any]]:
    return [{"name": declaration.name, **declaration.to_json()} for declaration in declared]


def _by_worker(items: Sequence[Item], worker: Callable[[Item], str | None]) -> Iterator[tuple[str, list[Item]]]:
    """In order. A request names one worker, and a batch of ours has only one."""
    for name, group in groupby(items, worker):
        yield label(name), list(group)


def _portions(
    items: Sequence[Item], as_json: Callable[[Item], dict[str, Any]], most: int
) -> Iterator[tuple[list[Item], list[dict[str, Any]]]]:
    """As many together as one request may hold."""
    some: list[Item] = []
    body: list[dict[str, Any]] = []
    size = 0
    for item in items:
        value = as_json(item)
        weight = len(encode(value))
        if some and (size + weight > MOST_BYTES or len(some) == most):
            yield some, body
            some, body, size = [], [], 0
        some.append(item)
        body.append(value)
        size += weight
    if some:
        yield some, body
