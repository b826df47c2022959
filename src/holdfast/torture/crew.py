"""The processes of a run: started, struck, and started again, each in a session of its own and dying with us.

A member is a role ("worker-http-1") that one process after the other plays; each of these is a life. Whoever has ended
is started again by `tend`, however it ended: a crew under a good supervisor.
"""

from __future__ import annotations

import os
import signal
import subprocess
import threading
import time
from collections.abc import Callable, Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass, field
from pathlib import Path

from holdfast.runners.commands.spawn import dying_with_us
from holdfast.runners.descendants import kill_tree
from holdfast.torture.results import Life

DATABASE, HTTP, REDIS, RQ, PLANE, CLIENT = "database", "http", "redis", "rq", "control plane", "client"
WORKERS = (DATABASE, HTTP, REDIS, RQ)
STOP_SECONDS = 8.0
REST_SECONDS = 0.5  # between two lives, so that what cannot start does not burn a core
TAIL_LINES = 15


@dataclass(frozen=True, slots=True)
class Role:
    name: str
    door: str
    command: Callable[[int], tuple[Sequence[str], Mapping[str, str]]]  # argv and environment of its n-th life


@dataclass(slots=True)
class Member:
    role: Role
    folder: Path
    born: float  # the run's beginning, on the monotonic clock
    popen: subprocess.Popen[bytes] | None = None
    lives: list[Life] = field(default_factory=list)
    ending: str = ""  # how the present life is being ended, if somebody does
    _began: float = 0.0
    _rest_until: float = 0.0

    @property
    def name(self) -> str:
        return self.role.name

    @property
    def door(self) -> str:
        return self.role.door

    @property
    def is_running(self) -> bool:
        return self.popen is not None and self.popen.poll() is None

    @property
    def log(self) -> Path:
        return self.folder / f"{self.name}.log"

    @property
    def pid(self) -> int:
        assert self.popen is not None
        return self.popen.pid

    def start(self) -> None:
        command, environment = self.role.command(len(self.lives) + 1)
        with self.log.open("ab") as log:
            self.popen = subprocess.Popen(
                dying_with_us(command, log.fileno()),
                pass_fds=[log.fileno()],
                cwd=self.folder,
                env=dict(environment),
                stdin=subprocess.DEVNULL,
                stdout=log,
                stderr=log,
                start_new_session=True,
            )
        self._began, self.ending = time.monotonic() - self.born, ""

    def tend(self) -> None:
        """Take note of an end, and start it again."""
        if self.is_running:
            return
        now = time.monotonic()
        if self.popen is not None:
            self.note_end(f"ended by itself ({self.popen.returncode})")
            self._rest_until = now + REST_SECONDS
        if now >= self._rest_until:
            self.start()

    def note_end(self, otherwise: str) -> None:
        if self.popen is not None:
            ended = time.monotonic() - self.born
            self.lives.append(Life(self.name, self.door, self._began, ended, self.ending or otherwise))
            self.popen = None

    def send(self, number: signal.Signals, ending: str = "") -> bool:
        """False when there is nobody to get it."""
        popen = self.popen
        if popen is None or popen.poll() is not None:
            return False
        self.ending = ending or self.ending
        with suppress(ProcessLookupError):
            os.kill(popen.pid, number)
        return True

    def said(self) -> str:
        """The end of its log."""
        with suppress(OSError):
            return "\n".join(self.log.read_text(encoding="utf-8", errors="replace").splitlines()[-TAIL_LINES:])
        return ""


class Crew:
    def __init__(self, folder: Path, roles: Sequence[Role], born: float) -> None:
        self._members = {role.name: Member(role, folder, born) for role in roles}
        self._on_duty = set(self._members)
        self._lock = threading.Lock()

    def member(self, name: str) -> Member:
        return self._members[name]

    def of(self, *doors: str) -> list[Member]:
        """Those on duty."""
        return [self._members[name] for name in sorted(self._on_duty) if self._members[name].door in doors]

    def all(self) -> list[Member]:
        return [self._members[name] for name in sorted(self._on_duty)]

    def tend(self) -> None:
        with self._lock:
            for name in self._on_duty:
                self._members[name].tend()

    def lives(self) -> tuple[Life, ...]:
        return tuple(life for member in self._members.values() for life in member.lives)

    def dismiss(self, members: Sequence[Member]) -> None:
        """They are not needed any more: ended in good order, and if that takes too long, not."""
        with self._lock:
            self._on_duty -= {member.name for member in members}
        for member in members:
            member.send(signal.SIGCONT)
            member.send(signal.SIGTERM, "dismissed")
        until = time.monotonic() + STOP_SECONDS
        for member in members:
            _wait(member, until)
            member.note_end("dismissed")

    def close(self) -> None:
        self.dismiss(self.all())


def _wait(member: Member, until: float) -> None:
    if member.popen is None:
        return
    try:
        member.popen.wait(max(0.1, until - time.monotonic()))
    except subprocess.TimeoutExpired:
        kill_tree(member.popen.pid)
        member.popen.wait()
