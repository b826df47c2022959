"""Holdfast: a durable job engine for Python.

Importing this costs next to nothing: each name is loaded when it is first asked for.
"""

from __future__ import annotations

from importlib import import_module
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from holdfast.domain.answers import Beat
    from holdfast.domain.artifacts import Artifact, ArtifactRef
    from holdfast.domain.dedupe import dedupe_key
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


_PLACES = {
    "App": "holdfast.tasks.app",
    "Artifact": "holdfast.domain.artifacts",
    "ArtifactMissing": "holdfast.domain.errors",
    "ArtifactRef": "holdfast.domain.artifacts",
    "ArtifactUnavailable": "holdfast.domain.errors",
    "AsyncTask": "holdfast.tasks.task",
    "Beat": "holdfast.domain.answers",
    "Cancel": "holdfast.tasks.flow",
    "Cancelled": "holdfast.domain.outcome",
    "Claimed": "holdfast.domain.job",
    "CommandTask": "holdfast.tasks.task",
    "ConfigurationError": "holdfast.domain.errors",
    "Conflict": "holdfast.domain.errors",
    "Context": "holdfast.tasks.context",
    "Crashed": "holdfast.domain.outcome",
    "Enqueued": "holdfast.domain.job",
    "Failed": "holdfast.domain.outcome",
    "FunctionTask": "holdfast.tasks.task",
    "Handle": "holdfast.tasks.handle",
    "HoldfastError": "holdfast.domain.errors",
    "InvalidInput": "holdfast.domain.errors",
    "Job": "holdfast.domain.job",
    "JobCancelled": "holdfast.domain.errors",
    "JobError": "holdfast.domain.outcome",
    "JobFailed": "holdfast.domain.errors",
    "JobInfo": "holdfast.tasks.context",
    "Kept": "holdfast.domain.record",
    "LeaseLost": "holdfast.domain.errors",
    "NewJob": "holdfast.domain.job",
    "NotFound": "holdfast.domain.errors",
    "Permanent": "holdfast.tasks.flow",
    "Record": "holdfast.domain.record",
    "Released": "holdfast.domain.outcome",
    "Report": "holdfast.domain.outcome",
    "RetryAfter": "holdfast.tasks.flow",
    "RetryPolicy": "holdfast.domain.retry",
    "SchemaMismatch": "holdfast.domain.errors",
    "Snooze": "holdfast.tasks.flow",
    "Snoozed": "holdfast.domain.outcome",
    "SourceView": "holdfast.domain.views",
    "State": "holdfast.domain.lifecycle",
    "StoreUnavailable": "holdfast.domain.errors",
    "Succeeded": "holdfast.domain.outcome",
    "Task": "holdfast.tasks.task",
    "TaskGroup": "holdfast.tasks.group",
    "Written": "holdfast.domain.record",
    "current": "holdfast.tasks.context",
    "dedupe_key": "holdfast.domain.dedupe",
    "open_store": "holdfast.wiring.sql",
}


def __getattr__(name: str) -> Any:
    if name in _PLACES:
        value = globals()[name] = getattr(import_module(_PLACES[name]), name)
        return value
    if name == "__version__":
        from importlib.metadata import version

        return version("holdfast")
    raise AttributeError(f"module 'holdfast' has no attribute {name!r}")


def __dir__() -> list[str]:
    return sorted({*globals(), *__all__})
