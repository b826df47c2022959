"""Run one job's code and turn whatever it does into a `done` frame. Nothing that user code raises gets past this."""

from __future__ import annotations

import sys
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import TYPE_CHECKING

from holdfast.domain.hot import hot_value
from holdfast.domain.outcome import Crashed, Failed, JobError, Outcome, Released
from holdfast.runners.child import messages, tracing
from holdfast.runners.endings import ending
from holdfast.runners.usage import Meter
from holdfast.tasks.execute import acall, call, outcome_of, outcome_of_error
from holdfast.tasks.placing import needs_a_file, placed
from holdfast.tasks.task import AnyTask, CommandTask

if TYPE_CHECKING:
    from holdfast.runners.child.work import Work

MOST_BYTES = 4 * 1024 * 1024


@hot_value(frozen=True, slots=True)
class Done:
    """`is_fatal`: the process ran out of memory and is not to be trusted with another job."""

    frames: bytes
    is_fatal: bool = False


@dataclass(frozen=True, slots=True)
class Executor:
    """`cpu_clock` as in `Meter`; `exclusive` as in `CommandRun`."""

    tasks: Mapping[str, AnyTask]
    cpu_clock: Callable[[float], float] | None
    term_grace_seconds: float
    exclusive: bool

    def knows(self, work: Work) -> bool:
        return work.job.task in self.tasks

    def is_command(self, work: Work) -> bool:
        return isinstance(self.tasks[work.job.task], CommandTask)

    def run(self, work: Work) -> Done:
        task = self.tasks[work.job.task]
        tracing.begin(work)
        meter = Meter(self.cpu_clock)
        if isinstance(task, CommandTask):
            return self._run_command(task, work, meter)
        try:
            outcome = placed(outcome_of(task, call(task, work.context)), work.context.saves)
        except MemoryError:
            return _out_of_memory(work, meter)
        except BaseException as error:  # SystemExit and KeyboardInterrupt too: a job does not end this process
            outcome = outcome_of_error(task, error, work.context)
        return _done(work, outcome, meter.read())

    async def arun(self, work: Work) -> Done:
        import asyncio  # a runner of functions never needs it

        task = self.tasks[work.job.task]
        if isinstance(task, CommandTask):
            return await asyncio.get_running_loop().run_in_executor(None, self.run, work)
        tracing.begin(work)
        meter = Meter(None)
        try:
            outcome = outcome_of(task, await acall(task, work.context))
            if needs_a_file(outcome):
                outcome = await asyncio.to_thread(placed, outcome, work.context.saves)
            else:
                outcome = placed(outcome, work.context.saves)
        except asyncio.CancelledError as error:
            reason = work.context.cancel_reason
            if reason is not None:
                outcome = ending(reason, work.job.timeout_seconds)
            else:
                outcome = Failed(JobError("CancelledError", f"the task's own code cancelled it: {error}".rstrip(": ")))
        except MemoryError:
            return _out_of_memory(work, meter)
        except BaseException as error:
            outcome = outcome_of_error(task, error, work.context)
        return _done(work, outcome, meter.read())

    def _run_command(self, task: CommandTask, work: Work, meter: Meter) -> Done:
        from holdfast.runners.command import CommandRun  # brings subprocess; most runners never start a command

        try:
            run = CommandRun(
                task.command,
                work.job,
                work.channel,
                lambda: work.context.cancel_reason,
                term_grace_seconds=self.term_grace_seconds,
                exclusive=self.exclusive,
            )
            work.wake = run.wake
            end = run.run()
            outcome = placed(end.outcome, work.context.saves)
        except Exception as error:
            return _done(work, outcome_of_error(task, error), meter.read())
        return _done(work, outcome, meter.read() | end.usage)


def _out_of_memory(work: Work, meter: Meter) -> Done:
    return _done(work, Crashed("the task ran out of memory (MemoryError)"), meter.read(), is_fatal=True)


def refused(work: Work) -> bytes:
    return messages.done(work.id, Released("this runner does not know the task"), {})


def stopped_before_start(work: Work) -> bytes:
    reason = work.context.cancel_reason or "released"
    return messages.done(work.id, ending(reason, work.job.timeout_seconds), {})


def _done(work: Work, outcome: Outcome, usage: dict[str, float], *, is_fatal: bool = False) -> Done:
    work.context.end_lines()
    work.asks.close()
    if work.context.saves is not None:
        work.context.saves.close()
    tracing.end(work, outcome)
    said = work.channel.close()
    if looks := work.context.cache_looks.told():
        said += messages.looked(work.id, looks)
    last = messages.completed_in if work.context.completed_in else messages.done
    try:
        words = last(work.id, outcome, usage)
    except Exception as error:  # say, Cancel(an_object): a job that ends without a word would run for ever
        words = last(work.id, Failed(JobError("unserialisable_outcome", str(error), retryable=False)), usage)
    if len(words) > MOST_BYTES:  # the supervisor has to hold it in memory, and no store takes it
        problem = f"what the task returned or raised takes {len(words):,} bytes; store it elsewhere"
        again = isinstance(outcome, Failed) and outcome.error.retryable
        words = last(work.id, Failed(JobError("unstorable_result", problem, retryable=again)), usage)
    return Done(said + words, is_fatal)


def flush_standard_streams() -> None:
    for stream in (sys.stdout, sys.stderr):
        try:
            stream.flush()
        except (AttributeError, OSError, ValueError):  # closed or replaced by user code
            continue
