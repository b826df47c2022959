"""Processes that act and are killed on the way: ``python -m tests.nth_step.mortal DESCRIPTOR``.

What is imported here, the many processes that it forks need not import again. On Postgres it is the proxy that kills,
from outside; on SQLite the process does it to itself, between two statements.
"""

from __future__ import annotations

import os
import signal
import socket
import subprocess
import sys
import traceback
from collections.abc import Callable
from contextlib import closing
from dataclasses import dataclass
from multiprocessing.connection import Connection
from pathlib import Path
from types import TracebackType
from typing import Any, Self

from tests.nth_step.breaking import process_dies
from tests.nth_step.fault import Fault, Strike
from tests.nth_step.grounds import postgres_hands, sqlite_hands
from tests.nth_step.scenarios import named
from tests.servers.waiting import DEADLINE_SECONDS

ANSWERED, ENDED = "answered", "ended"
REPOSITORY = Path(__file__).parents[2]


@dataclass(frozen=True)
class Errand:
    url: str
    scenario: str
    case: Any
    strike: Strike


class Mortals:
    """Sends one after the other on errands."""

    def __enter__(self) -> Self:
        ours, theirs = socket.socketpair()
        with theirs:
            command = [sys.executable, "-m", "tests.nth_step.mortal", str(theirs.fileno())]
            self._process = subprocess.Popen(command, cwd=REPOSITORY, pass_fds=[theirs.fileno()])
        self._line: Connection[Any, Any] = Connection(ours.detach())
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self._line.close()
        self._process.wait(DEADLINE_SECONDS)

    def send(self, errand: Errand, born: Callable[[int], None] = lambda _pid: None) -> list[Any]:
        """The one answer that it got; none if it was killed."""
        self._line.send(errand)
        born(self._line.recv())
        self._line.send("go")
        *answers, status = self._heard()
        assert os.waitstatus_to_exitcode(status) in (0, -signal.SIGKILL), "it failed by itself: its traceback is above"
        return answers if status == 0 else []

    def _heard(self) -> list[Any]:
        """Its answer, if it lived to tell it, and how it ended."""
        heard: list[tuple[str, Any]] = []
        while not heard or heard[-1][0] != ENDED:
            heard.append(self._line.recv())
        return [word for _kind, word in heard]


def main(descriptor: int) -> None:
    line: Connection[Any, Any] = Connection(descriptor)
    while True:
        try:
            errand = line.recv()
        except EOFError:
            return
        pid = os.fork()
        if pid == 0:
            _live(line, errand)
        _, status = os.waitpid(pid, 0)
        line.send((ENDED, status))


def _live(line: Connection[Any, Any], errand: Errand) -> None:
    line.send(os.getpid())
    line.recv()
    try:
        line.send((ANSWERED, act(errand)))
    except BaseException:
        traceback.print_exc()
        os._exit(1)
    os._exit(0)


def act(errand: Errand) -> Any:
    fault = Fault()
    on_sqlite = errand.url.startswith("sqlite")
    hands = sqlite_hands(errand.url, fault, process_dies) if on_sqlite else postgres_hands(errand.url)
    with closing(hands):
        fault.arm(errand.strike)
        try:
            return named(errand.scenario).act(hands, errand.case)
        finally:
            fault.disarm()


if __name__ == "__main__":
    main(int(sys.argv[1]))
