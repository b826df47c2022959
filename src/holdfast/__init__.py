"""Holdfast: a durable job engine for Python.

Importing this costs little: what needs a database library is loaded when it is first asked for.
"""

from __future__ import annotations

from importlib import import_module
from typing import TYPE_CHECKING, Any

from holdfast.domain.answers import Beat
from holdfast.domain.artifacts import Artifact, ArtifactRef
from holdfast.domain.errors import (
    ArtifactMissing,
    ArtifactUnavailable,
    ConfigurationError,
    Conflict,
    HoldfastError,
    InvalidInput,
    JobCancelled,
    JobFailed,
    LeaseLost,
    NotFound,
    SchemaMismatch,
    StoreUnavailable,
)
from holdfast.domain.job import Claimed, Enqueued, Job, NewJob
from holdfast.domain.lifecycle import State
from holdfast.domain.outcome import Cancelled, Crashed, Failed, JobError, Released, Report, Snoozed, Succeeded
from holdfast.domain.record import Kept, Record, Written
from holdfast.domain.retry import RetryPolicy
from holdfast.domain.views import SourceView

if TYPE_CHECKING:
    from holdfast.domain.dedupe import dedupe_key
    from holdfast.tasks.app import App
    from holdfast.tasks.context import Context, JobInfo, current
    from holdfast.tasks.flow import Cancel, Permanent, RetryAfter, Snooze
    from holdfast.tasks.group import TaskGroup
    from holdfast.tasks.handle import Handle
    from holdfast.tasks.task import AsyncTask, CommandTask, FunctionTask, Task
    from holdfast.wiring.sql import open_store

    __version__: str

__all__ = [
    "App",
    "Artifact",
    "ArtifactMissing",
    "ArtifactRef",
    "ArtifactUnavailable",
    "AsyncTask",
    "Beat",
    "Cancel",
    "Cancelled",
    "Claimed",
    "CommandTask",
    "ConfigurationError",
    "Conflict",
    "Context",
    "Crashed",
    "Enqueued",
    "Failed",
    "FunctionTask",
    "Handle",
    "HoldfastError",
    "InvalidInput",
    "Job",
    "JobCancelled",
    "JobError",
    "JobFailed",
    "JobInfo",
    "Kept",
    "LeaseLost",
    "NewJob",
    "NotFound",
    "Permanent",
    "Record",
    "Released",
    "Report",
    "RetryAfter",
    "RetryPolicy",
    "SchemaMismatch",
    "Snooze",
    "Snoozed",
    "SourceView",
    "State",
    "StoreUnavailable",
    "Succeeded",
    "Task",
    "TaskGroup",
    "Written",
    "__version__",
    "current",
    "dedupe_key",
    "open_store",
]


_LAZY = {
    "App": "holdfast.tasks.app",
    "AsyncTask": "holdfast.tasks.task",
    "Cancel": "holdfast.tasks.flow",
    "CommandTask": "holdfast.tasks.task",
    "Context": "holdfast.tasks.context",
    "FunctionTask": "holdfast.tasks.task",
    "Handle": "holdfast.tasks.handle",
    "JobInfo": "holdfast.tasks.context",
    "Permanent": "holdfast.tasks.flow",
    "RetryAfter": "holdfast.tasks.flow",
    "Snooze": "holdfast.tasks.flow",
    "Task": "holdfast.tasks.task",
    "TaskGroup": "holdfast.tasks.group",
    "current": "holdfast.tasks.context",
    "dedupe_key": "holdfast.domain.dedupe",
    "open_store": "holdfast.wiring.sql",
}


def __getattr__(name: str) -> Any:
    if name in _LAZY:
        value = globals()[name] = getattr(import_module(_LAZY[name]), name)
        return value
    if name == "__version__":
        from importlib.metadata import version

        return version("holdfast")
    raise AttributeError(f"module 'holdfast' has no attribute {name!r}")


def __dir__() -> list[str]:
    return sorted({*globals(), *__all__})
