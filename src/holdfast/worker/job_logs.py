"""Lines that jobs said, stored about once a second in one statement, however many there are.

Runners cap each attempt (see `tasks/log_budget.py`). Here the total is bounded too: while the store is away, old lines
give way, because a worker's memory must not grow with an outage.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Callable

from holdfast.domain.logs import LogLine
from holdfast.ports import Store
from holdfast.worker.desk import Desk, Refusal
from holdfast.worker.part import NEVER
from holdfast.worker.retrying import Retrying

EVERY_SECONDS = 1.0
BATCH = 1_000
MOST_BYTES = 4 * 1024 * 1024
_LINE_BYTES = 200


class JobLogs:
    def __init__(self, store: Callable[[], Store], ring: Callable[[], None], retrying: Retrying) -> None:
        self._waiting: deque[LogLine] = deque()
        self._bytes = 0
        self._asked: list[LogLine] = []
        self._due_at = 0.0
        self._retrying = retrying

        def append(lines: list[LogLine]) -> int:
            store().append_logs(lines)
            return len(lines)

        self._desk: Desk[list[LogLine], int] = Desk("logs", append, ring)

    def __len__(self) -> int:
        return len(self._waiting) + len(self._asked)

    def add(self, lines: list[LogLine]) -> None:
        self._waiting.extend(lines)
        self._bytes += sum(map(_weight, lines))
        while self._bytes > MOST_BYTES and self._waiting:
            self._bytes -= _weight(self._waiting.popleft())

    def step(self, now: float) -> None:
        self._take(now)
        if self._waiting and not self._desk.busy and now >= max(self._due_at, self._retrying.not_before):
            self._asked = [self._waiting.popleft() for _ in range(min(BATCH, len(self._waiting)))]
            self._bytes -= sum(map(_weight, self._asked))
            self._due_at = now + (0.0 if self._waiting else EVERY_SECONDS)
            self._desk.ask(self._asked)

    def _take(self, now: float) -> None:
        answer = self._desk.take()
        if isinstance(answer, Refusal):
            self._waiting.extendleft(reversed(self._asked))
            self._bytes += sum(map(_weight, self._asked))
            self._asked = []
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


def _weight(line: LogLine) -> int:
    """About what it takes in memory: empty lines, and fields, are not free."""
    return _LINE_BYTES + len(line.message) + (len(str(line.fields)) if line.fields else 0)
