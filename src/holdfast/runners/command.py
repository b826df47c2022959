"""Run one external command as a job: started, fed, listened to, stopped, judged. The contract is docs/commands.md."""

from __future__ import annotations

import contextlib
import os
import threading
from collections.abc import Callable, Iterator
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any

from holdfast.domain.outcome import Crashed, Outcome
from holdfast.domain.spec import encode_json
from holdfast.domain.traceparent import checked
from holdfast.runners import usage
from holdfast.runners.commands import verdict
from holdfast.runners.commands.directories import own_directory
from holdfast.runners.commands.environment import environment
from holdfast.runners.commands.output import Output
from holdfast.runners.commands.spawn import Spawned, in_worker_directory, program, spawn
from holdfast.runners.commands.tree import CommandTree
from holdfast.runners.commands.watch import End, Watch
from holdfast.runners.descendants import children
from holdfast.runners.endings import ending
from holdfast.tasks.arguments import decodable
from holdfast.tasks.command import PAYLOAD
from holdfast.tasks.log_budget import LogBudget

if TYPE_CHECKING:
    from holdfast.domain.logs import Stream
    from holdfast.runners.commands.envelope import Progress
    from holdfast.tasks.command import Command
    from holdfast.tasks.context import Channel, JobInfo

TERM_GRACE_SECONDS = 5.0


@dataclass(frozen=True, slots=True)
class CommandEnd:
    outcome: Outcome
    usage: dict[str, int] = field(default_factory=dict)


class CommandRun:
    """`stop_reason()` says why the command should stop, or None; call `wake()` whenever its answer changes.

    `exclusive` promises that this process starts nothing else meanwhile: then every new child counts as the command's.
    """

    def __init__(
        self,
        command: Command,
        job: JobInfo,
        channel: Channel,
        stop_reason: Callable[[], str | None] = lambda: None,
        *,
        term_grace_seconds: float = TERM_GRACE_SECONDS,
        exclusive: bool = False,
    ) -> None:
        self._command = command
        self._job = job
        self._channel = channel
        self._stop_reason = stop_reason
        self._term_grace_seconds = term_grace_seconds
        self._exclusive = exclusive
        self._budget = LogBudget(job.id, job.attempt, max_bytes=command.max_output_bytes)
        self._output = Output(self._say, self._progress)
        self._wake_lock = threading.Lock()
        self._wake_read, write_end = os.pipe()
        os.set_blocking(write_end, False)
        self._wake_write: int | None = write_end

    def wake(self) -> None:
        """Safe from any thread, before, during and after the run."""
        with self._wake_lock, contextlib.suppress(BlockingIOError):
            if self._wake_write is not None:
                os.write(self._wake_write, b".")

    def run(self) -> CommandEnd:
        try:
            with _directory(self._command.cwd) as cwd:
                return self._run_in(cwd)
        finally:
            self._close_wake()

    def _close_wake(self) -> None:
        with self._wake_lock:
            for descriptor in (self._wake_read, self._wake_write):
                if descriptor is not None:
                    os.close(descriptor)
            self._wake_write = None

    def _run_in(self, cwd: str) -> CommandEnd:
        payload = encode_json(decodable(self._job.payload))
        argv = [word.replace(PAYLOAD, payload) for word in self._command.argv]
        in_argument = any(PAYLOAD in word for word in self._command.argv)
        earlier = frozenset(children(os.getpid())) if self._exclusive else None
        names = self._job_names()
        try:
            env = environment(self._command.env, {**self._trace_names(), **names})
            spawned = spawn([program(argv[0]), *argv[1:]], env, cwd, with_stdin=not in_argument)
        except OSError as error:
            missing = f"the working directory {cwd}" if error.filename in (cwd, cwd.encode()) else argv[0]
            return CommandEnd(verdict.not_started(missing, error.errno or 0, error.strerror or str(error)))
        tree = CommandTree(spawned.popen.pid, frozenset(f"{k}={v}".encode() for k, v in names.items()), earlier)
        return self._follow(spawned, tree, None if in_argument else f"{payload}\n".encode())

    def _follow(self, spawned: Spawned, tree: CommandTree, stdin: bytes | None) -> CommandEnd:
        watch = Watch(spawned, tree, self._output, self._stop_reason, self._wake_read)
        end = watch.follow(stdin, self._term_grace_seconds)
        figures = usage.of_command(end.usage) if end.usage is not None else {}
        return CommandEnd(self._outcome(end, watch), figures)

    def _outcome(self, end: End, watch: Watch) -> Outcome:
        if watch.start_error:
            number, _, text = watch.start_error.partition(" ")
            return verdict.not_started(self._command.argv[0], int(number), text)
        if watch.was_stopped and (reason := self._stop_reason()) is not None:
            return ending(reason, self._job.timeout_seconds)
        if end.code is None:
            return Crashed("the command ended, but something else in this process collected its exit status")
        if end.code < 0:
            return verdict.after_signal(-end.code)
        if end.code == 0:
            return verdict.after_success(self._output.decision)
        permanent = self._command.permanent_exit_codes
        return verdict.after_failure(end.code, self._output.error, self._output.error_tail(), permanent)

    def _job_names(self) -> dict[str, str]:
        names = {
            "HOLDFAST_JOB_ID": self._job.id,
            "HOLDFAST_ATTEMPT": str(self._job.attempt),
            "HOLDFAST_TASK": self._job.task,
            "HOLDFAST_QUEUE": self._job.queue,
        }
        if self._job.timeout_seconds is not None:
            names["HOLDFAST_TIMEOUT_SECONDS"] = f"{self._job.timeout_seconds:g}"
        return names

    def _trace_names(self) -> dict[str, str]:
        """Not among the names by which its processes are known: a program that makes spans changes it for its own."""
        traceparent = checked(self._job.traceparent)
        return {} if traceparent is None else {"TRACEPARENT": traceparent}

    def _say(self, stream: Stream, message: str, level: str | None, fields: dict[str, Any]) -> bool:
        for line in self._budget.lines(stream, message, level, fields):
            self._channel.log(line)
        return not self._budget.spent

    def _progress(self, said: Progress) -> None:
        figures = {"done": said.done, "total": said.total, "note": said.note}
        self._channel.progress({name: value for name, value in figures.items() if value is not None})


@contextlib.contextmanager
def _directory(given: str | None) -> Iterator[str]:
    """The task's directory, or a fresh one that is removed afterwards."""
    if given is not None:
        yield in_worker_directory(given)
        return
    with own_directory() as path:
        yield path
