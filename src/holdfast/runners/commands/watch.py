"""Follow a started program to its end: feed stdin, read both outputs, stop it when asked, bound every wait."""

from __future__ import annotations

import contextlib
import math
import os
import resource
import selectors
import subprocess
from collections.abc import Callable
from dataclasses import dataclass
from time import monotonic
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from holdfast.runners.commands.output import Output
    from holdfast.runners.commands.spawn import Spawned
    from holdfast.runners.commands.tree import CommandTree

DRAIN_SECONDS = 1.0
_CHUNK = 64 * 1024
_MAX_PIPE_BYTES = 1024 * 1024
_POLL_SECONDS = 0.05  # how soon an exit is noticed where the kernel has no pidfd


@dataclass(frozen=True, slots=True)
class End:
    """`code` as in `Popen.returncode` (negative: a signal), None when the status was lost to somebody else's wait."""

    code: int | None
    usage: resource.struct_rusage | None


class Watch:
    """One program. `wake` is a descriptor that becomes readable when `stop_reason()` may have changed."""

    def __init__(
        self, spawned: Spawned, tree: CommandTree, output: Output, stop_reason: Callable[[], str | None], wake: int
    ) -> None:
        self._spawned = spawned
        self._tree = tree
        self._output = output
        self._stop_reason = stop_reason
        self._selector = selectors.DefaultSelector()
        self._open_outputs = 2
        self._end: End | None = None
        self.was_stopped = False
        self._kill_at = math.inf
        self._drained_at = math.inf
        self._exit_descriptor = _exit_descriptor(spawned.popen.pid)
        self._start_error = b""
        self._register(wake)

    def _register(self, wake: int) -> None:
        register = self._selector.register
        register(wake, selectors.EVENT_READ, lambda: self._selector.unregister(wake))
        register(self._spawned.status, selectors.EVENT_READ, self._read_status)
        register(self._spawned.stream("stdout"), selectors.EVENT_READ, self._read_stdout)
        register(self._spawned.stream("stderr"), selectors.EVENT_READ, self._read_stderr)
        if self._exit_descriptor is not None:
            register(self._exit_descriptor, selectors.EVENT_READ, self._notice_exit)

    @property
    def start_error(self) -> str:
        """Why exec failed, as "ERRNO text"; empty when the program was started."""
        return self._start_error.decode(errors="replace")

    def follow(self, stdin: bytes | None, term_grace_seconds: float) -> End:
        try:
            self._feed(stdin)
            while self._end is None or (self._open_outputs and monotonic() < self._drained_at):
                self._step(term_grace_seconds)
            return self._end
        finally:
            self._tree.sweep()
            self._read_what_is_left()
            self._close()

    def _step(self, term_grace_seconds: float) -> None:
        # Asked before every wait: whoever changes the answer wakes the selector afterwards.
        if self._end is None and not self.was_stopped and self._stop_reason() is not None:
            self.was_stopped = True
            self._kill_at = monotonic() + term_grace_seconds
            self._tree.terminate()
        if self._end is None and monotonic() >= self._kill_at:
            self._tree.kill()
        for key, _ in self._selector.select(self._patience()):
            key.data()
        if self._exit_descriptor is None and self._end is None:
            self._notice_exit()

    def _patience(self) -> float | None:
        until = self._drained_at if self._end is not None else self._kill_at
        wait = max(0.0, until - monotonic())
        if self._end is None and (wait == 0 or self._exit_descriptor is None):
            return _POLL_SECONDS
        return None if math.isinf(wait) else wait

    def _notice_exit(self) -> None:
        if (end := _wait(self._spawned.popen)) is None:
            return
        self._end = end
        self._drained_at = monotonic() + DRAIN_SECONDS
        if self._exit_descriptor is not None:
            self._selector.unregister(self._exit_descriptor)

    # the pipes

    def _feed(self, data: bytes | None) -> None:
        if (pipe := self._spawned.stdin) is None:
            return
        os.set_blocking(pipe.fileno(), False)
        rest = memoryview(data or b"")

        def write() -> None:
            nonlocal rest
            # A program that does not read its stdin, or closes it early, is none of our business.
            with contextlib.suppress(BlockingIOError):
                try:
                    rest = rest[os.write(pipe.fileno(), rest) :]
                except BrokenPipeError:
                    rest = rest[:0]
            if not rest:
                self._selector.unregister(pipe)
                pipe.close()

        self._selector.register(pipe, selectors.EVENT_WRITE, write)

    def _read_status(self) -> None:
        self._start_error += (chunk := os.read(self._spawned.status, 1024))
        if not chunk:
            self._selector.unregister(self._spawned.status)

    def _read_stdout(self) -> None:
        self._read("stdout", self._output.stdout.feed)

    def _read_stderr(self) -> None:
        self._read("stderr", self._output.feed_stderr)

    def _read(self, name: str, feed: Callable[[bytes], None]) -> bool:
        pipe = self._spawned.stream(name)
        if chunk := os.read(pipe.fileno(), _CHUNK):
            feed(chunk)
        else:
            self._selector.unregister(pipe)
            pipe.close()
            self._open_outputs -= 1
        return bool(chunk)

    def _read_what_is_left(self) -> None:
        """Everything that could write is dead; what the pipes still hold is at most a pipe's worth."""
        for name, feed in (("stdout", self._output.stdout.feed), ("stderr", self._output.feed_stderr)):
            pipe = self._spawned.stream(name)
            if pipe.closed:
                continue
            os.set_blocking(pipe.fileno(), False)
            with contextlib.suppress(BlockingIOError):
                for _ in range(_MAX_PIPE_BYTES // _CHUNK):
                    if not self._read(name, feed):
                        break
        os.set_blocking(self._spawned.status, False)
        with contextlib.suppress(BlockingIOError):
            self._start_error += os.read(self._spawned.status, 1024)
        self._output.close()

    def _close(self) -> None:
        self._selector.close()
        for pipe in (self._spawned.stdin, self._spawned.stream("stdout"), self._spawned.stream("stderr")):
            if pipe is not None:
                pipe.close()
        os.close(self._spawned.status)
        if self._exit_descriptor is not None:
            os.close(self._exit_descriptor)


def _exit_descriptor(pid: int) -> int | None:
    """Becomes readable when the process ends."""
    try:
        return os.pidfd_open(pid)
    except (AttributeError, OSError):
        return None


def _wait(popen: subprocess.Popen[bytes]) -> End | None:
    try:
        pid, status, usage = os.wait4(popen.pid, os.WNOHANG)
    except ChildProcessError:
        # The user's own code waits for any child, or ignores SIGCHLD.
        popen.returncode = 0
        return End(None, None)
    if pid == 0:
        return None
    popen.returncode = os.waitstatus_to_exitcode(status)  # tells Popen that there is nothing left to wait for
    return End(popen.returncode, usage)
