"""One runner process, seen from its supervisor: started, fed, listened to, killed with everything it started.

The runner is exec'd (no fork of a process that has connections and threads), in a session of its own, and dies with
its supervisor: it sets its parent-death signal itself, first thing. That signal is tied to the *thread* that started
it, so runners are started by the supervisor's main thread only.
"""

from __future__ import annotations

import contextlib
import os
import signal
import socket
import subprocess
import sys
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING

from holdfast.domain.manifest import Kind
from holdfast.runners import frames
from holdfast.runners.descendants import kill_tree

if TYPE_CHECKING:
    from holdfast.domain.job import Claimed

_CHUNK = 256 * 1024


@dataclass(frozen=True, slots=True)
class RunnerSpec:
    """How to start a runner of one kind."""

    app: str
    kind: Kind  # SYNC runs functions and commands, ASYNC coroutines
    slots: int
    term_grace_seconds: float
    max_memory: int | None = None

    def command(self, descriptor: int) -> list[str]:
        arguments = {
            "fd": descriptor,
            "app": self.app,
            "kind": self.kind,
            "slots": self.slots,
            "parent": os.getpid(),
            "memory": self.max_memory or 0,
            "term-grace": self.term_grace_seconds,
        }
        flags = [word for name, value in arguments.items() for word in (f"--{name}", str(value))]
        return [sys.executable, "-m", "holdfast.runners.child", *flags]


@dataclass(frozen=True, slots=True)
class Exit:
    code: int | None
    signal: int | None

    def __str__(self) -> str:
        if self.signal is None:
            return f"exited with code {self.code}"
        known = self.signal in set(signal.Signals)  # of the real-time ones only the first and the last have names
        return f"was killed by {signal.Signals(self.signal).name if known else f'signal {self.signal}'}"


class RunnerProcess:
    """`jobs` are the executions it holds by lease id, in the order of their handover; the value: has it started?"""

    def __init__(self, spec: RunnerSpec, environment: Mapping[str, str] | None = None) -> None:
        self.spec = spec
        self.ready = False
        self.tasks: frozenset[str] = frozenset()  # what its code knows; another may have read newer code
        self.stopping = False
        self.killed: str | None = None
        self.terminated = False  # we sent TERM: if it dies of that, no job did it
        self.line_closed = False
        self.is_pinged = False  # a ping is on its way, and no pong has come
        self.finished = 0
        self.jobs: dict[str, bool] = {}
        ours, theirs = socket.socketpair()
        ours.setblocking(False)
        self._socket = ours
        self._decoder = frames.Decoder()
        self._unsent = bytearray()
        with theirs:
            self._popen = subprocess.Popen(
                spec.command(theirs.fileno()),
                pass_fds=[theirs.fileno()],
                stdin=subprocess.DEVNULL,
                start_new_session=True,
                env={**os.environ, **(environment or {})},
            )

    @property
    def pid(self) -> int:
        return self._popen.pid

    @property
    def kind(self) -> Kind:
        return self.spec.kind

    @property
    def shared(self) -> bool:
        return self.spec.slots > 1

    @property
    def open(self) -> bool:
        """May be given work."""
        return self.ready and not self.stopping and self.killed is None

    @property
    def free(self) -> int:
        """Slots without a job; below zero when jobs are queued ahead."""
        return self.spec.slots - len(self.jobs)

    @property
    def has_unsent(self) -> bool:
        return bool(self._unsent)

    def fileno(self) -> int:
        return self._socket.fileno()

    # talking

    def run(self, jobs: Sequence[Claimed], artifacts: str | None = None) -> None:
        self.jobs.update((job.lease_id, False) for job in jobs)
        self._send(frames.run(jobs, artifacts))

    def cancel(self, lease_id: str, reason: str) -> None:
        self._send(frames.encode("cancel", id=lease_id, reason=reason))

    def tell_lease_lost(self, lease_id: str) -> None:
        self._send(frames.encode("lease_lost", id=lease_id))

    def answer(self, frame: bytes) -> None:
        """To an ask of one of its jobs; encoded by whoever had the answer."""
        self._send(frame)

    def give_back(self, *, draining: bool = False) -> None:
        self._send(frames.encode("give_back", draining=draining))

    def ping(self) -> None:
        self.is_pinged = True
        self._send(frames.encode("ping"))

    def stop(self) -> None:
        """Let it finish what it has started, give back the rest, and end."""
        if not self.stopping:
            self.stopping = True
            self._send(frames.encode("give_back") + frames.encode("stop"))

    def _send(self, data: bytes) -> None:
        self._unsent += data
        self.flush()

    def flush(self) -> None:
        try:
            while self._unsent:
                sent = self._socket.send(self._unsent)
                del self._unsent[:sent]
        except BlockingIOError:
            return
        except OSError:  # it is gone; its end is noticed elsewhere
            self._unsent.clear()

    def read(self) -> list[frames.Frame]:
        """What it said since we last listened; also after its death."""
        data = self._receive()
        return [] if data is None else self._decode(data)

    def _decode(self, data: bytes) -> list[frames.Frame]:
        """Who says what is no frame is out of our reach, as if the line were closed."""
        found = self._decoder.feed(data)
        self.line_closed = self._decoder.is_broken
        return found

    def _receive(self) -> bytes | None:
        try:
            data = self._socket.recv(_CHUNK)
        except BlockingIOError:
            return None
        except ConnectionError:
            data = b""
        self.line_closed = not data
        return data or None

    def read_all(self) -> list[frames.Frame]:
        """Everything that a dead runner has left behind."""
        found: list[frames.Frame] = []
        while (data := self._receive()) is not None:
            found += self._decode(data)
        return found

    # ending

    def exited(self) -> Exit | None:
        code = self._popen.poll()
        if code is None:
            return None
        return Exit(None, -code) if code < 0 else Exit(code, None)

    def terminate(self) -> None:
        """TERM; should its code survive that, it ends after what it runs now."""
        self.terminated = True
        self.stop()
        with contextlib.suppress(ProcessLookupError):
            self._popen.terminate()

    def kill(self, why: str) -> None:
        """SIGKILL to it and to everything it ever started that is still there."""
        if self.killed is None:  # once is enough, and to kill what cannot even be stopped takes a second each time
            self.killed = why
            self.finish_off()

    def finish_off(self) -> None:
        if self._popen.poll() is None:
            kill_tree(self.pid)
            self._popen.kill()  # also where the process table cannot be read, say without a free descriptor

    def wait(self, seconds: float | None = None) -> None:
        with contextlib.suppress(subprocess.TimeoutExpired):
            self._popen.wait(seconds)

    def close(self) -> None:
        self._socket.close()

    def memory(self) -> int:
        """Resident bytes of the runner and of what it has started; 0 when nobody knows."""
        return resident_below(self.pid)


def resident_below(pid: int) -> int:
    return resident(pid) + sum(resident_below(child) for child in _children(pid))


def _children(pid: int) -> list[int]:
    try:
        lists = [path.read_text() for path in Path(f"/proc/{pid}/task").glob("*/children")]
    except OSError:
        return []
    return [int(child) for text in lists for child in text.split()]


def resident(pid: int) -> int:
    """Of this process alone."""
    try:
        with open(f"/proc/{pid}/statm", "rb") as file:  # noqa: PTH123 - a pseudo file, read many times a second
            return int(file.read().split()[1]) * os.sysconf("SC_PAGE_SIZE")
    except (OSError, IndexError, ValueError):
        return 0
