"""Traces inside a runner: what user code does is a part of its attempt.

Where the supervisor traces, the attempt's span is made there, because it outlives this process; the job comes with the
span's context. A supervisor that has no tracer provider does not know one that the app sets up when it is imported,
which is here: then the span is made here, and is lost if this process is killed.
"""

from __future__ import annotations

import os
from dataclasses import replace
from typing import TYPE_CHECKING

from holdfast.runners.frames import TRACED, WORKER
from holdfast.tasks import tracing

if TYPE_CHECKING:
    from holdfast.domain.outcome import Outcome
    from holdfast.runners.child.work import Work

SERVICE = "holdfast-runner"


def begin(work: Work) -> None:
    traces = tracing.active()
    if traces is None:
        return
    if TRACED in os.environ or not traces.is_recording:
        work.context.trace = traces.inside(work.job.traceparent)
        return
    work.trace = traces.attempt(work.job, os.environ.get(WORKER), work.due_seconds)
    work.context.trace = work.trace
    work.job = work.context.job = replace(work.job, traceparent=work.trace.traceparent or work.job.traceparent)


def end(work: Work, outcome: Outcome) -> None:
    if work.trace is not None:
        work.trace.ended(outcome)
