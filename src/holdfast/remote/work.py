"""Heartbeats, reports, logs and announcements over HTTP, in batches that a control plane takes.

Everything here may arrive twice: a heartbeat renews, a report that was heard before gets the same answer again, and a
log line has a number.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from itertools import groupby
from typing import Any, TypeVar

from holdfast.domain.answers import Beat, Beaten, Settled
from holdfast.domain.errors import NotAllowed
from holdfast.domain.jsonable import to_json
from holdfast.domain.logs import LogLine
from holdfast.domain.manifest import TaskInfo
from holdfast.domain.outcome import Report
from holdfast.domain.schedule import Declaration, ScheduleFailure
from holdfast.domain.views import WorkerRow
from holdfast.domain.wire import attempt_id, beat_to_json, beaten_from_json, report_to_json, settled_from_json
from holdfast.remote.cleaning import NOBODY, clean_beat, clean_line, clean_report, label
from holdfast.remote.leases import Leases
from holdfast.remote.line import Line
from holdfast.remote.portions import portions, send_allowed

WORKER = "/internal/worker"
MOST_AT_ONCE = 500
MOST_LINES = 1_000

Item = TypeVar("Item")


class Work:
    _line: Line
    _leases: Leases
    # What this token may not announce: it is told of once.
    _not_our_tasks: set[str]
    _not_our_schedules: set[str]

    def heartbeat(self, beats: Sequence[Beat]) -> list[Beaten]:
        answers: list[Beaten] = []
        for worker, batch in _by_worker([clean_beat(beat) for beat in beats], lambda beat: beat.worker):
            for some, body in portions(batch, beat_to_json, MOST_AT_ONCE):
                found = self._line.post(f"{WORKER}/heartbeats", {"worker_id": worker, "beats": body})["answers"]
                answers += [beaten_from_json(beat.job_id, answer) for beat, answer in zip(some, found, strict=True)]
        return answers

    def settle(self, reports: Sequence[Report]) -> list[Settled]:
        answers: list[Settled] = []
        for worker, batch in _by_worker([clean_report(report) for report in reports], lambda report: report.worker):
            for some, body in portions(batch, report_to_json, MOST_AT_ONCE):
                found = self._line.post(f"{WORKER}/reports", {"worker_id": worker, "reports": body})["answers"]
                answers += [
                    settled_from_json(report.job_id, report.attempt, answer)
                    for report, answer in zip(some, found, strict=True)
                ]
        return answers

    def append_logs(self, lines: Sequence[LogLine], worker: str = NOBODY) -> None:
        """Under the leases of their attempts. A line whose lease nobody remembers would be refused: it is left out."""
        known = {lease["attempt_id"] for lease in self._leases.shown(map(_attempt_id, lines))}
        own = [clean_line(line) for line in lines if _attempt_id(line) in known]
        for some, body in portions(own, LogLine.to_json, MOST_LINES):
            leases = self._leases.shown(map(_attempt_id, some))
            self._tell("logs", {"worker_id": worker, "lines": body, "leases": leases}, "ok")

    def announce(self, tasks: Sequence[TaskInfo], worker: str = NOBODY) -> None:
        """A token that is limited to queues announces the tasks of these; of the others an error tells once."""

        def send(some: Sequence[TaskInfo]) -> None:
            self._tell("announce", {"worker_id": worker, "tasks": [task.to_json() for task in some]}, "failures")

        ours = [task for task in tasks if task.name not in self._not_our_tasks]
        refused = send_allowed(ours, send) if ours else []
        if refused:
            names = [task.name for task, _error in refused]
            self._not_our_tasks.update(names)
            raise NotAllowed(f"not announced: {', '.join(names)}: {refused[0][1]}")

    def announce_schedules(self, declared: Sequence[Declaration], worker: str = NOBODY) -> tuple[ScheduleFailure, ...]:
        failures: list[ScheduleFailure] = []

        def send(some: Sequence[Declaration]) -> None:
            answer = self._line.post(f"{WORKER}/announce", {"worker_id": worker, "schedules": _declared(some)})
            failures.extend(ScheduleFailure(told["schedule"], told["message"]) for told in answer["failures"])

        refused = send_allowed(declared, send) if declared else []
        self._not_our_schedules = {item.name for item, _error in refused}
        return (*failures, *(ScheduleFailure(item.name, str(error)) for item, error in refused))

    def keep_schedules(self, declared: Sequence[Declaration], worker: str = NOBODY) -> None:
        """Without those that were refused when they were declared."""

        def send(some: Sequence[Declaration]) -> None:
            self._tell("announce", {"worker_id": worker, "kept": _declared(some)}, "failures")

        ours = [item for item in declared if item.name not in self._not_our_schedules]
        if ours:
            send_allowed(ours, send)

    def keep_worker(self, row: WorkerRow) -> None:
        self._tell("worker", to_json(row), "ok")

    def _tell(self, path: str, body: Any, member: str) -> None:
        """`member` is in every response of a control plane, and not in a page that a proxy sent with a 200."""
        self._line.post(f"{WORKER}/{path}", body)[member]


def _attempt_id(line: LogLine) -> str:
    return attempt_id(line.job_id, line.attempt)


def _declared(declared: Sequence[Declaration]) -> list[dict[str, Any]]:
    return [{"name": declaration.name, **declaration.to_json()} for declaration in declared]


def _by_worker(items: Sequence[Item], worker: Callable[[Item], str | None]) -> Iterator[tuple[str, list[Item]]]:
    """In order. A request names one worker, and a batch of ours has only one."""
    for name, group in groupby(items, worker):
        yield label(name), list(group)
