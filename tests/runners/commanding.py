"""Run a command task in this process and keep what it said."""

import os
import threading
from dataclasses import dataclass, field
from typing import Any

from holdfast.domain.logs import LogLine, Stream
from holdfast.runners.command import CommandEnd, CommandRun
from holdfast.tasks.command import Command
from holdfast.tasks.context import JobInfo
from tests.servers.waiting import DEADLINE_SECONDS

JOB_ID = "01890000-0000-7000-8000-000000000001"


@dataclass
class Heard:
    lines: list[LogLine] = field(default_factory=list)
    values: list[dict[str, Any]] = field(default_factory=list)

    def progress(self, value: dict[str, Any]) -> None:
        self.values.append(value)

    def log(self, line: LogLine) -> None:
        self.lines.append(line)

    def completing(self) -> None:
        raise AssertionError("a command cannot complete in a transaction")

    def said(self, stream: Stream) -> list[str]:
        return [line.message for line in self.lines if line.stream is stream]


@dataclass
class Ran:
    end: CommandEnd
    heard: Heard

    @property
    def outcome(self) -> Any:
        return self.end.outcome

    @property
    def stdout(self) -> list[str]:
        return self.heard.said(Stream.STDOUT)


class Stoppable:
    """A command on a thread of its own, to be stopped from the test."""

    def __init__(self, command: Command, *, term_grace_seconds: float = 5.0, timeout: float | None = None) -> None:
        self.heard = Heard()
        self.end: CommandEnd | None = None
        self._reason: str | None = None
        job = JobInfo(id=JOB_ID, task="test", timeout_seconds=timeout)
        self._run = CommandRun(
            command, job, self.heard, lambda: self._reason, term_grace_seconds=term_grace_seconds, exclusive=False
        )
        self._thread = threading.Thread(target=self._work, daemon=True)
        self._thread.start()

    def _work(self) -> None:
        self.end = self._run.run()

    def stop(self, reason: str) -> None:
        self._reason = reason
        self._run.wake()

    def finish(self, timeout: float = DEADLINE_SECONDS) -> CommandEnd:
        self._thread.join(timeout)
        assert self.end is not None, "the command did not end"
        return self.end


def run(*argv: str, payload: dict[str, Any] | None = None, timeout: float | None = None, **options: Any) -> Ran:
    heard = Heard()
    job = JobInfo(id=JOB_ID, task="test", payload=payload or {}, attempt=2, timeout_seconds=timeout)
    return Ran(CommandRun(Command(argv=argv, **options), job, heard, exclusive=False).run(), heard)


def shell(script: str, **options: Any) -> Ran:
    """A shell as the program under test; Holdfast itself never uses one."""
    return run("sh", "-c", script, **options)


def is_alive(pid: int) -> bool:
    try:
        os.kill(pid, 0)
    except ProcessLookupError:
        return False
    return not _is_zombie(pid)


def _is_zombie(pid: int) -> bool:
    from holdfast.runners.process_table import process

    found = process(pid)
    return found is None or found.is_zombie
