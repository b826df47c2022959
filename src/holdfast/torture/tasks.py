"""What the jobs of a torture run do: nothing of use, in every way that a job can go.

Each execution writes down that it began, and that it came to its last line, in the notes of its own process. The number
in a payload makes every spec another one.
"""

from __future__ import annotations

import asyncio
import os
import signal
import time
from collections.abc import Iterator
from contextlib import contextmanager
from datetime import datetime
from functools import cache
from pathlib import Path

from holdfast import App, Context, Permanent, Snooze
from holdfast.domain.job import MAX_BUDGET
from holdfast.torture.notes import Began, Ended, Notebook

NOTES_VARIABLE = "HOLDFAST_TORTURE_NOTES"
BULK, MIXED = "bulk", "mixed"
QUEUES = (MIXED, BULK)
METERED, NARROW = "metered", "narrow"
METERED_PER_MINUTE, NARROW_AT_ONCE = 120, 2
EVERY_SECONDS = 2
TICKING, GATHERED = "ticking", "gathered"
MAX_CRASHES = 3

app = App()
app.source(METERED, rate=f"{METERED_PER_MINUTE}/m")
app.source(NARROW, max_concurrent=NARROW_AT_ONCE)
# However often a worker is killed under it, such a job must come to its end.
tough = app.group("tough", max_attempts=MAX_BUDGET, max_crashes=MAX_BUDGET, retry="1s", queue=MIXED)


@cache
def _notebook(_pid: int) -> Notebook:
    return Notebook(Path(os.environ[NOTES_VARIABLE]), f"runner-{os.environ.get('WORKER_ID', 'nobody')}")


@contextmanager
def noted(ctx: Context) -> Iterator[None]:
    """An `Ended` only for what came to its end by itself."""
    notebook, pid = _notebook(os.getpid()), os.getpid()
    notebook.write(Began(ctx.job.id, ctx.attempt, pid))
    yield
    notebook.write(Ended(ctx.job.id, ctx.attempt, pid))


@tough.task(queue=BULK)
def quick(number: int, ctx: Context) -> int:
    with noted(ctx):
        return number


@tough.task
def steady(number: int, seconds: float, ctx: Context) -> int:
    """Longer than a lease, some of them: they live by heartbeats."""
    with noted(ctx):
        time.sleep(seconds)
        return number


@tough.task
async def awaited(number: int, seconds: float, ctx: Context) -> int:
    with noted(ctx):
        await asyncio.sleep(seconds)
        return number


@tough.task
def flaky(number: int, failures: int, ctx: Context) -> int:
    with noted(ctx):
        if ctx.attempt <= failures:
            raise RuntimeError(f"attempt {ctx.attempt} was told to fail")
        return number


@tough.task
def snoozing(number: int, ctx: Context) -> int:
    with noted(ctx):
        if ctx.attempt == 1:
            raise Snooze(1)
        return number


@tough.task(source=METERED)
def metered(number: int, ctx: Context) -> int:
    with noted(ctx):
        return number


@tough.task(source=NARROW)
def narrow(number: int, ctx: Context) -> int:
    with noted(ctx):
        time.sleep(0.1)
        return number


@app.task(queue=MIXED)
def hopeless(number: int, ctx: Context) -> None:
    with noted(ctx):
        raise Permanent(f"job {number} was told to fail for good")


@app.task(queue=MIXED, max_attempts=MAX_BUDGET, max_crashes=MAX_CRASHES, retry="1s")
def poison(number: int, ctx: Context) -> None:  # noqa: ARG001
    with noted(ctx):
        os.kill(os.getpid(), signal.SIGKILL)


@app.task(queue=MIXED, max_attempts=MAX_BUDGET, max_crashes=MAX_BUDGET, retry="1s")
def undecodable(number: int, ctx: Context) -> int:
    """Its jobs are inserted with payloads that no worker can decode, so this code never runs."""
    with noted(ctx):
        return number


# Its working directory, its group and its pipes are torn down with it; it writes no notes.
program = app.command(
    "tough.program",
    ["sh", "-c", "cat >/dev/null; sleep 0.2"],
    queue=MIXED,
    max_attempts=MAX_BUDGET,
    max_crashes=MAX_BUDGET,
    retry="1s",
)


@app.schedule(every=EVERY_SECONDS, name=TICKING, tick="planned", misfire="all", misfire_limit=1000)
@tough.task
def tick(planned: datetime, ctx: Context) -> str:
    with noted(ctx):
        return planned.isoformat()


@app.schedule(every=EVERY_SECONDS, name=GATHERED, tick="planned", misfire="once", misfire_grace="5s")
@tough.task
def gathered(planned: datetime, ctx: Context) -> str:
    with noted(ctx):
        return planned.isoformat()


CALM = tuple(
    f"tough.{name}"
    for name in ("quick", "steady", "awaited", "snoozing", "metered", "narrow", "program", "tick", "gathered")
)
POISON = ("poison",)
UNDECODABLE = "undecodable"
UNNOTED = ("tough.program",)
