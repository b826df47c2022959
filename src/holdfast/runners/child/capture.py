"""What a job's code prints and logs, kept with the job.

`sys.stdout` and `sys.stderr` are replaced by streams that still write everything to where it went before, and beside
that hand it to the job in whose context the code runs. Log records are seen where every logger passes them on
(`Logger.callHandlers`) and not by a handler on the root logger: with one, `logging.basicConfig()` inside a task would
do nothing, warnings of programs that configure nothing would vanish from the terminal, and a `dictConfig` would throw
it out. What the user's own handlers write while they handle a record that was kept is not kept a second time.

Nothing here may fail or slow down user code: once the attempt's budget is spent a print costs two look-ups more than
before. What a subprocess or C code writes to descriptors 1 and 2 passes by unseen.
"""

from __future__ import annotations

import logging
import sys
import threading
import traceback
from collections.abc import Callable, Iterable, Iterator
from contextlib import contextmanager
from typing import Any, TextIO, cast

from holdfast.domain.logs import Stream
from holdfast.forks import fork_safe
from holdfast.tasks.context import Context, find_current

LONGEST_EXCEPTION = 8_000

FindJob = Callable[[], Context | None]
CallHandlers = Callable[[logging.Logger, logging.LogRecord], None]


class _Muted(threading.local):
    """While a thread's `depth` is above zero, what it writes to the streams is known already."""

    depth = 0


_muted = _Muted()


class JobStream:
    """Stands where `sys.stdout` or `sys.stderr` stood. What it does not define is the original's."""

    def __init__(self, original: TextIO, stream: Stream, find_lone_job: FindJob) -> None:
        self._original = original
        self._write = original.write
        self._stream = stream
        self._find_lone_job = find_lone_job

    def write(self, text: str) -> int:
        written = self._write(text)
        job = find_current()
        # The way of most prints of a job that prints a million times: nothing is kept, and nothing else happens.
        if job is None or not job.budget.spent:
            self.keep(text)
        return written

    def writelines(self, lines: Iterable[str]) -> None:
        for line in lines:
            self.write(line)

    @property
    def buffer(self) -> JobBuffer:
        return JobBuffer(self._original.buffer, self)

    def keep(self, text: str) -> None:
        try:
            job = find_current() or self._find_lone_job()
            if job is not None and not job.budget.spent and not _muted.depth:
                job.wrote(self._stream, text)
        except Exception:
            return  # a print never fails because of us

    def __getattr__(self, name: str) -> Any:
        return getattr(self._original, name)


class JobBuffer:
    """The same for the bytes below: `sys.stdout.buffer.write`."""

    def __init__(self, original: Any, stream: JobStream) -> None:
        self._original = original
        self._job_stream = stream

    def write(self, data: Any) -> int:
        written: int = self._original.write(data)
        self._job_stream.keep(bytes(data).decode(errors="replace"))
        return written

    def __getattr__(self, name: str) -> Any:
        return getattr(self._original, name)


class Capture:
    """`find_lone_job` says whose words they are that a thread says which has no context of its own."""

    def __init__(self, find_lone_job: FindJob) -> None:
        self._find_lone_job = find_lone_job
        self._undo: list[Callable[[], None]] = []

    def install(self) -> None:
        self._replace_stream("stdout", Stream.STDOUT)
        self._replace_stream("stderr", Stream.STDERR)
        self._watch_loggers()
        self._hear_information()

    def remove(self) -> None:
        while self._undo:
            self._undo.pop()()

    def _replace_stream(self, name: str, stream: Stream) -> None:
        original = getattr(sys, name)
        if original is None:  # as under pythonw, or where user code has taken it away
            return
        ours = cast(TextIO, JobStream(original, stream, self._find_lone_job))
        setattr(sys, name, ours)

        def restore() -> None:
            if getattr(sys, name) is ours:  # what a job put there in the meantime is the user's business
                setattr(sys, name, original)

        self._undo.append(restore)

    def _watch_loggers(self) -> None:
        original = cast(CallHandlers, logging.Logger.callHandlers)
        keep = self._keep

        def callHandlers(self: logging.Logger, record: logging.LogRecord) -> None:
            if not keep(record):
                original(self, record)
                return
            _muted.depth += 1
            try:
                original(self, record)
            finally:
                _muted.depth -= 1

        self._replace_call_handlers(original, callHandlers)

    def _replace_call_handlers(self, original: CallHandlers, ours: CallHandlers) -> None:
        kind: Any = logging.Logger
        kind.callHandlers = ours

        def restore() -> None:
            if kind.callHandlers is ours:
                kind.callHandlers = original

        self._undo.append(restore)

    def _hear_information(self) -> None:
        """Where nobody has configured anything, `logger.info` counts; what the user configured wins."""
        root = logging.getLogger()
        if root.handlers or root.level != logging.WARNING:
            return
        root.setLevel(logging.INFO)

        def restore() -> None:
            if root.level == logging.INFO and not root.handlers:
                root.setLevel(logging.WARNING)

        self._undo.append(restore)

    def _keep(self, record: logging.LogRecord) -> bool:
        """True if the record is some job's."""
        try:
            job = find_current() or self._find_lone_job()
            if job is None:
                return False
            if not job.budget.spent:
                job.keep(Stream.LOG, _message(record), record.levelname.lower(), _fields(record))
        except Exception:
            return False
        return True


def _message(record: logging.LogRecord) -> str:
    try:
        return record.getMessage()
    except Exception:  # arguments that do not fit: logging tells the user about it when it comes to the handlers
        return str(record.msg)


def _fields(record: logging.LogRecord) -> dict[str, Any]:
    fields: dict[str, Any] = {"logger": record.name}
    if record.exc_info and record.exc_info[1] is not None:
        text = record.exc_text or "".join(traceback.format_exception(record.exc_info[1]))
        fields["exception"] = _end_of(text.strip())
    if record.stack_info:
        fields["stack"] = _end_of(record.stack_info)
    return fields


def _end_of(text: str) -> str:
    """The end of a traceback says most."""
    return text if len(text) <= LONGEST_EXCEPTION else f"… {text[-LONGEST_EXCEPTION:]}"


class _InProcess:
    """For `app.work()`: installed while any job runs in this process, and gone without a trace afterwards."""

    def __init__(self) -> None:
        self._lock = fork_safe(threading.Lock())
        self._jobs: list[Context] = []
        self._capture: Capture | None = None

    @contextmanager
    def __call__(self, context: Context) -> Iterator[None]:
        with self._lock:
            self._jobs.append(context)
            if self._capture is None:
                self._capture = Capture(self._lone_job)
                self._capture.install()
        try:
            yield
        finally:
            context.end_lines()
            with self._lock:
                self._jobs.remove(context)
                if not self._jobs and self._capture is not None:
                    self._capture.remove()
                    self._capture = None

    def _lone_job(self) -> Context | None:
        jobs = list(self._jobs)
        return jobs[0] if len(jobs) == 1 else None


captured = _InProcess()
