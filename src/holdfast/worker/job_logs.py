"""Lines that jobs said, on their way to the store: one statement at a time, at a bounded rate.

Runners cap each attempt (see `tasks/log_budget.py`). Here the total is bounded too. A batch leaves at most ten times a
second and holds at most a thousand lines, so a worker stores at most 10,000 lines a second; a quiet job's line leaves
at once, the next ones half a second later together. What has to wait is kept in a bounded buffer: when it is full,
because the store is away or a whole fleet is chatty, the oldest lines give way. Lines are numbered, so readers see the
gap and say how many are missing.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Callable

from holdfast.domain.errors import proves_bad_content
from holdfast.domain.logs import LogLine
from holdfast.periodic.desk import Desk, Refusal
from holdfast.periodic.part import NEVER
from holdfast.periodic.retrying import Retrying
from holdfast.ports import Store

EVERY_SECONDS = 0.5
BACKLOG_EVERY_SECONDS = 0.1
BATCH = 1_000
BATCH_BYTES = 1024 * 1024
MOST_BYTES = 16 * 1024 * 1024
_LINE_BYTES = 250


class JobLogs:
    def __init__(self, store: Callable[[], Store], ring: Callable[[], None], retrying: Retrying) -> None:
        self._waiting: deque[LogLine] = deque()
        self._bytes = 0
        self._asked: list[LogLine] = []
        self._due_at = 0.0
        self._retrying = retrying

        self._desk: Desk[list[LogLine], int] = Desk("logs", lambda lines: _append(store(), lines), ring)

    def __len__(self) -> int:
        return len(self._waiting) + len(self._asked)

    def add(self, lines: list[LogLine]) -> None:
        self._waiting.extend(lines)
        self._bytes += sum(map(_weight, lines))
        self._make_room()

    def _make_room(self) -> None:
        while self._bytes > MOST_BYTES and self._waiting:
            self._bytes -= _weight(self._waiting.popleft())

    def step(self, now: float) -> None:
        self._take(now)
        if self._waiting and not self._desk.busy and now >= max(self._due_at, self._retrying.not_before):
            self._asked = self._batch()
            self._due_at = now + (BACKLOG_EVERY_SECONDS if self._waiting else EVERY_SECONDS)
            self._desk.ask(self._asked)

    def _batch(self) -> list[LogLine]:
        batch: list[LogLine] = []
        size = 0
        while self._waiting and len(batch) < BATCH and size < BATCH_BYTES:
            line = self._waiting.popleft()
            size += _weight(line)
            batch.append(line)
        self._bytes -= size
        return batch

    def _take(self, now: float) -> None:
        answer = self._desk.take()
        if isinstance(answer, Refusal):
            self._waiting.extendleft(reversed(self._asked))
            self._bytes += sum(map(_weight, self._asked))
            self._asked = []
            self._make_room()
            self._retrying.failed(now, answer.error)
        elif answer is not None:
            self._asked = []
            self._retrying.worked(now)

    def wake_at(self) -> float:
        if not self._waiting or self._desk.busy:
            return NEVER
        return max(self._due_at, self._retrying.not_before)

    def flush(self) -> None:
        self._due_at = 0.0

    def close(self) -> None:
        self._desk.close()


def _append(store: Store, lines: list[LogLine]) -> int:
    """How many were stored. A line that is proven to be bad leaves a gap; it must not hold up all that follow."""
    try:
        store.append_logs(lines)
    except Exception as error:
        if not proves_bad_content(error):
            raise
        half = len(lines) // 2
        return sum(_append(store, part) for part in (lines[:half], lines[half:])) if half else 0
    return len(lines)


def _weight(line: LogLine) -> int:
    """About what it takes in memory: empty lines, and fields, are not free."""
    return _LINE_BYTES + len(line.message) + (len(str(line.fields)) if line.fields else 0)
