"""What a running job knows about itself, and its way to the engine."""

from __future__ import annotations

import math
from collections.abc import Callable
from contextlib import suppress
from contextvars import ContextVar, Token
from dataclasses import dataclass, field
from datetime import timedelta
from threading import RLock, get_ident
from typing import TYPE_CHECKING, Any, Protocol

from holdfast.domain import durations
from holdfast.domain.errors import ConfigurationError, InvalidInput, LeaseLost
from holdfast.domain.logs import LogLine, Stream
from holdfast.domain.outcome import Report, Succeeded
from holdfast.forks import fork_safe
from holdfast.tasks.asking import Asking, Records, Sources
from holdfast.tasks.flag import Flag
from holdfast.tasks.flow import Cancel
from holdfast.tasks.log_budget import LogBudget
from holdfast.tasks.partial_line import PartialLine
from holdfast.tasks.placing import place
from holdfast.tasks.results import result_to_json

if TYPE_CHECKING:
    from holdfast.domain.artifacts import Artifact, ArtifactRef
    from holdfast.domain.job import Claimed
    from holdfast.tasks.saving import Saves

LEASE_LOST = "lease_lost"
LONGEST_NOTE = 1_000


@dataclass(frozen=True, slots=True, kw_only=True)
class JobInfo:
    """The job as its own code sees it. `attempt` is the fence number: it grows with every execution."""

    id: str
    task: str
    payload: dict[str, Any] = field(default_factory=dict)
    attempt: int = 1
    version: str | None = None
    queue: str = "default"
    source: str | None = None
    timeout_seconds: float | None = None
    lease_seconds: float = 60.0
    traceparent: str | None = None

    @classmethod
    def from_claimed(cls, claimed: Claimed) -> JobInfo:
        return cls(
            id=claimed.job_id,
            task=claimed.task,
            payload=claimed.payload,
            attempt=claimed.attempt,
            version=claimed.task_version,
            queue=claimed.queue,
            source=claimed.source,
            timeout_seconds=claimed.timeout_seconds,
            lease_seconds=claimed.lease_seconds,
            traceparent=claimed.traceparent,
        )


class Channel(Protocol):
    """The engine, as a running job sees it. Any thread may call it."""

    def progress(self, value: dict[str, Any]) -> None: ...

    def log(self, line: LogLine) -> None: ...

    def completing(self) -> None: ...


class Trace(Protocol):
    """A span that a job's code runs in."""

    def enter(self) -> Callable[[], None]:
        """Make it the current one of this thread or coroutine; what is returned undoes that."""


class Silent:
    """A channel to nobody, for a task that is called as a plain function."""

    def progress(self, value: dict[str, Any]) -> None:
        pass

    def log(self, line: LogLine) -> None:
        pass

    def completing(self) -> None:
        pass


Complete = Callable[[Any, Report], None]
# Taken again by a signal handler or a finaliser that prints while its own thread makes a budget.
_making = fork_safe(RLock())


def _no_engine(connection: Any, report: Report) -> None:  # noqa: ARG001
    raise ConfigurationError("complete_in works only inside a job that a worker runs")


class Context(Records, Sources):
    """Handed to a task that has a parameter annotated `Context`; `holdfast.current()` gives it to deeper code."""

    def __init__(
        self,
        job: JobInfo,
        channel: Channel,
        token: str,
        *,
        complete: Complete = _no_engine,
        budget: LogBudget | None = None,
        saves: Saves | None = None,
        asking: Asking | None = None,
    ) -> None:
        super().__init__(asking)
        self.job = job
        self.saves = saves  # for the engine
        self.trace: Trace | None = None  # likewise
        self.completed_in = False
        self._channel = channel
        self._token = token
        self._complete = complete
        self._budget = budget
        self._partial_lines: dict[tuple[Stream, int], PartialLine] = {}
        self._stop = Flag()
        self._reasons: list[str] = []
        self._lease_lost = False

    @property
    def budget(self) -> LogBudget:
        """Made when the first line is said: most jobs say none."""
        return self._budget or self._make_budget()

    def _make_budget(self) -> LogBudget:
        with _making:
            self._budget = self._budget or LogBudget(self.job.id, self.job.attempt)
            return self._budget

    @property
    def attempt(self) -> int:
        return self.job.attempt

    @property
    def traceparent(self) -> str | None:
        """Where this attempt stands in a trace: its own span where traces are on, else what the job came with."""
        return self.job.traceparent

    def progress(self, done: float, total: float | None = None, note: str | None = None) -> None:
        """How far the job is, for people to look at."""
        value: dict[str, Any] = {"done": _number(done, "done")}
        if total is not None:
            value["total"] = _number(total, "total")
        if note is not None:
            value["note"] = str(note)[:LONGEST_NOTE]
        self._channel.progress(value)

    def log(self, message: object, level: str = "info", **fields: Any) -> None:
        """A line kept with this attempt; beyond 10,000 lines or 1 MiB of text nothing more is kept."""
        self.keep(Stream.LOG, str(message), str(level), fields)

    def keep(
        self, stream: Stream, message: str, level: str | None = None, fields: dict[str, Any] | None = None
    ) -> None:
        """For the engine: a whole line of this attempt, wherever it was said."""
        for line in self.budget.lines(stream, message, level, fields):
            self._channel.log(line)

    def wrote(self, stream: Stream, text: str) -> None:
        """For the engine: a piece of text that this job's code wrote; lines are kept when they are complete."""
        key = (stream, get_ident())  # threads that print at the same time do not mix their words
        partial = self._partial_lines.get(key)
        if partial is None:
            partial = self._partial_lines.setdefault(key, PartialLine())
        for line in partial.feed(text):
            self.keep(stream, line)
            if self.budget.spent:
                return

    def end_lines(self) -> None:
        """For the engine: the job has ended, and so have the lines it was writing."""
        while self._partial_lines:
            with suppress(Exception):  # out of memory, say: how the job ended must be told all the same
                (stream, _), partial = self._partial_lines.popitem()
                if (rest := partial.rest()) is not None:
                    self.keep(stream, rest)

    @property
    def cancelled(self) -> bool:
        """True once the job should stop: somebody cancelled it, its time is up, or its lease is lost."""
        return self._stop.is_set()

    @property
    def cancel_reason(self) -> str | None:
        """Why it should stop: cancel_requested, timeout or lease_lost; the first one that was said."""
        return self._reasons[0] if self._reasons else None

    @property
    def lease_lost(self) -> bool:
        """True once another worker may be running this job."""
        return self._lease_lost or LEASE_LOST in self._reasons

    def wait_cancelled(self, timeout: float | str | timedelta | None = None) -> bool:
        """Sleep until the job should stop, or for `timeout`; True if it should stop."""
        return self._stop.wait(None if timeout is None else durations.seconds(timeout, "timeout"))

    def request_cancel(self, reason: str) -> None:
        """The engine's word that this job should stop."""
        self._reasons.append(reason)
        self._stop.set()
        self._woken.set()

    def lose_lease(self) -> None:
        """The engine's word that another worker may have this job, to a task that goes on all the same."""
        self._lease_lost = True
        self._woken.set()

    def stopped(self) -> Exception:
        """For the engine: what is raised where the job waits and should stop."""
        if self.lease_lost:
            return LeaseLost(f"job {self.job.id}, attempt {self.job.attempt}: another worker may be running it; stop")
        return Cancel(self.cancel_reason or "cancelled")

    @property
    def has_to_stop(self) -> bool:
        return self.cancelled or self.lease_lost

    def save(self, name: str, data: Any) -> ArtifactRef:
        """Keep bytes, text or JSON as a file of this attempt, at once and whole; it is on record when the attempt ends,
        however it ends. Return the reference, and it is the job's result."""
        if self.saves is None:
            raise ConfigurationError("ctx.save works only inside a job that a worker runs")
        return self.saves.save(name, data)

    async def asave(self, name: str, data: Any) -> ArtifactRef:
        """The same without holding up the event loop."""
        import asyncio

        return await asyncio.to_thread(self.save, name, data)

    @property
    def artifacts(self) -> tuple[Artifact, ...]:
        """What this attempt has saved so far."""
        return () if self.saves is None else self.saves.artifacts

    def complete_in(self, connection: Any, result: Any = None) -> None:
        """Finish this job in the user's own transaction: it has succeeded if and only if that commits."""
        outcome = place(Succeeded(result_to_json(result)), self.saves)
        # Said first: from the next statement on the job's row is locked, and its heartbeat would wait for it.
        self._channel.completing()
        saved = () if self.saves is None else self.saves.seal()
        looks = self.cache_looks.told()
        report = Report(self.job.id, self.job.attempt, self._token, outcome, artifacts=saved, cache=looks)
        self._complete(connection, report)
        self.completed_in = True


def _number(value: Any, name: str) -> float:
    if isinstance(value, bool) or not isinstance(value, int | float) or not math.isfinite(value):
        raise InvalidInput(name, f"must be a number, got {value!r}")
    return value


_current: ContextVar[Context | None] = ContextVar("holdfast_context", default=None)


def current() -> Context:
    """The context of the job that this code runs in."""
    context = _current.get()
    if context is None:
        raise ConfigurationError("there is no current job: holdfast.current() works only in code that a job runs")
    return context


def current_or_none() -> Context | None:
    return _current.get()


# The same without the cost of a call in Python, for who asks at every print.
find_current: Callable[[], Context | None] = _current.get


class entered:
    """`with entered(context):` what runs inside is that job. A class, because a generator costs several times more."""

    def __init__(self, context: Context) -> None:
        self._context = context

    def __enter__(self) -> Context:
        self._token: Token[Context | None] = _current.set(self._context)
        trace = self._context.trace
        self._leave = None if trace is None else trace.enter()
        return self._context

    def __exit__(self, *_: object) -> None:
        if self._leave is not None:
            self._leave()
        _current.reset(self._token)


def detached(task: str) -> Context:
    """For a task that is called as a plain function outside any job."""
    return Context(JobInfo(id="00000000-0000-0000-0000-000000000000", task=task), Silent(), "")
