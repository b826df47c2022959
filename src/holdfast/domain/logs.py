"""A line that a job said, on its way from the runner to the store."""

from __future__ import annotations

from dataclasses import dataclass, field
from datetime import datetime
from enum import StrEnum
from typing import Any


class Stream(StrEnum):
    LOG = "log"  # ctx.log, or a log line that a command reported
    STDOUT = "stdout"
    STDERR = "stderr"


@dataclass(frozen=True, slots=True)
class LogLine:
    """`number` counts the lines of one attempt: storing a line twice stores it once."""

    job_id: str
    attempt: int
    number: int
    at: datetime
    stream: Stream
    message: str
    level: str | None = None
    fields: dict[str, Any] = field(default_factory=dict)

    def to_json(self) -> dict[str, Any]:
        return {
            "job_id": self.job_id,
            "attempt": self.attempt,
            "number": self.number,
            "at": self.at.isoformat(),
            "stream": str(self.stream),
            "message": self.message,
            "level": self.level,
            "fields": self.fields,
        }

    @classmethod
    def from_json(cls, value: dict[str, Any]) -> LogLine:
        return cls(
            value["job_id"],
            value["attempt"],
            value["number"],
            datetime.fromisoformat(value["at"]),
            Stream(value["stream"]),
            value["message"],
            value["level"],
            value["fields"],
        )


@dataclass(frozen=True, slots=True)
class LostLines:
    """So many lines of an attempt were said and never stored: its worker had more to store than it may keep."""

    attempt: int
    count: int


class Gaps:
    """Lines are numbered from 1 and stored in order: a number that is missing is a line that was lost on its way."""

    def __init__(self) -> None:
        self._last = (0, 0)

    def before(self, line: LogLine) -> LostLines | None:
        """What is missing between the line that was seen last and this one."""
        attempt, number = self._last
        expected = number + 1 if attempt == line.attempt else 1
        self._last = (line.attempt, line.number)
        return LostLines(line.attempt, line.number - expected) if line.number > expected else None
