"""Holdfast: a durable job engine for Python.

Importing this costs little: what needs a database library is loaded when it is first asked for.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from holdfast.domain.answers import Beat
from holdfast.domain.errors import (
    ConfigurationError,
    Conflict,
    HoldfastError,
    InvalidInput,
    NotFound,
    SchemaMismatch,
    StoreUnavailable,
)
from holdfast.domain.job import Claimed, Enqueued, Job, NewJob
from holdfast.domain.lifecycle import State
from holdfast.domain.outcome import Cancelled, Crashed, Failed, JobError, Released, Report, Snoozed, Succeeded
from holdfast.domain.retry import RetryPolicy

if TYPE_CHECKING:
    from holdfast.wiring import open_store

    __version__: str

__all__ = [
    "Beat",
    "Cancelled",
    "Claimed",
    "ConfigurationError",
    "Conflict",
    "Crashed",
    "Enqueued",
    "Failed",
    "HoldfastError",
    "InvalidInput",
    "Job",
    "JobError",
    "NewJob",
    "NotFound",
    "Released",
    "Report",
    "RetryPolicy",
    "SchemaMismatch",
    "Snoozed",
    "State",
    "StoreUnavailable",
    "Succeeded",
    "__version__",
    "open_store",
]


def __getattr__(name: str) -> Any:
    if name == "open_store":
        from holdfast.wiring import open_store

        return open_store
    if name == "__version__":
        from importlib.metadata import version

        return version("holdfast")
    raise AttributeError(f"module 'holdfast' has no attribute {name!r}")
