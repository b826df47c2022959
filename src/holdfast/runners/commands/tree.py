"""Which processes belong to a command, also after its main process has gone."""

from __future__ import annotations

import contextlib
import os
import signal
from dataclasses import dataclass
from pathlib import Path

from holdfast.runners.descendants import descendants, kill_trees, reap
from holdfast.runners.process_table import processes


@dataclass(frozen=True, slots=True)
class CommandTree:
    """A process is the command's when it descends from it, is in its session, or has its job in its environment.

    The last one finds a daemon that forked twice into a session of its own: it is a child of this runner by now.
    A runner that runs nothing else (`earlier` holds its children from before) takes every new child for the command's,
    and so finds even a daemon with a clean environment.
    """

    pid: int
    marks: frozenset[bytes]  # b"NAME=value" entries that only this command's processes have
    earlier: frozenset[int] | None

    def members(self) -> list[int]:
        below_runner = set(descendants(os.getpid()))
        below_command = {self.pid, *descendants(self.pid)}
        table = {item.pid: item for item in processes() if item.pid in below_runner}
        return [
            pid for pid, item in table.items() if pid in below_command or self._owns(pid, item.parent, item.session)
        ]

    def terminate(self) -> None:
        for pid in self.members():
            with contextlib.suppress(ProcessLookupError, PermissionError):
                os.kill(pid, signal.SIGTERM)

    def kill(self) -> list[int]:
        return kill_trees(self.members())

    def sweep(self) -> None:
        """Kill and bury what the command left behind."""
        reap(self.kill())
        if self.earlier is not None:
            dead = [item.pid for item in processes() if item.parent == os.getpid() and item.pid not in self.earlier]
            reap(dead, timeout_seconds=0)

    def _owns(self, pid: int, parent: int, session: int) -> bool:
        if session == self.pid:
            return True
        if self.earlier is not None and parent == os.getpid() and pid not in self.earlier:
            return True
        return self.marks <= _environment(pid)


def _environment(pid: int) -> set[bytes]:
    try:
        return set(Path(f"/proc/{pid}/environ").read_bytes().split(b"\0"))
    except OSError:
        return set()
