"""Every error Holdfast raises on purpose, in one tree.

HoldfastError
├── InvalidInput          a value the caller gave breaks a rule; nothing was stored
│   ├── Conflict          the value is well-formed but clashes with what is stored
│   └── TooLarge          the value has more bytes than its limit
├── NotFound              no such job, queue or source
│   └── ArtifactMissing   a saved file that is on record is not where the artifacts are kept
├── ArtifactUnavailable   a file cannot be saved or read: no space, no permission, no answer
├── ConfigurationError    settings, URL or installation
│   ├── SchemaMismatch    the database's tables are older or newer than this code
│   └── NotAllowed        a control plane does not allow this to the token
├── StoreUnavailable      the database cannot be reached, or stayed busy for too long
│   └── RequestFailed     an error that says nothing about the request, sent by the store or something before it
├── JobFailed             the result of a job was asked for, and it has failed for good
├── JobCancelled          the result of a job was asked for, and it was cancelled
└── LeaseLost             a job wanted something on its lease, and the lease is no longer its own

To the verbs of a store that end or renew leases a lost lease is an answer (see `domain/answers.py`), not an exception:
`LeaseLost` is raised by what a job does *inside* its attempt (finish in its own transaction, write records, enter a
source), where user code must not go on as if nothing had happened.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from holdfast.domain.job import Job


class HoldfastError(Exception):
    """Something Holdfast could not do."""


class InvalidInput(HoldfastError, ValueError):
    """A value breaks a rule."""

    def __init__(self, field: str, rule: str) -> None:
        super().__init__(f"{field}: {rule}")
        self.field = field
        self.rule = rule


class Conflict(InvalidInput):
    """A value clashes with what is already stored."""


class TooLarge(InvalidInput):
    """A value has more bytes than may be stored."""

    def __init__(self, field: str, rule: str, limit_bytes: int | None) -> None:
        super().__init__(field, rule)
        self.limit_bytes = limit_bytes  # None where whoever refused it did not say


class NotFound(HoldfastError, LookupError):
    """There is no such thing."""


class ArtifactMissing(NotFound):
    """A saved file is not there."""


class ArtifactUnavailable(HoldfastError):
    """A file cannot be saved or read."""


class ConfigurationError(HoldfastError):
    """The configuration cannot work."""


class SchemaMismatch(ConfigurationError):
    """The database schema and this version of Holdfast do not fit together."""


class NotAllowed(ConfigurationError):
    """Not with this token."""


class StoreUnavailable(HoldfastError):
    """The store cannot be reached."""


class RequestBusy(StoreUnavailable):
    """The store is there, and this very request is being answered elsewhere: ask again."""


class RequestFailed(StoreUnavailable):
    """The request got an error whose cause is unknown. It is sent again; it may be the cause nevertheless."""


def is_away(error: Exception) -> bool:
    """Whether there is no store to send anything to; an error of this one request does not say that."""
    return isinstance(error, StoreUnavailable) and not isinstance(error, RequestFailed)


def proves_bad_content(error: Exception) -> bool:
    """Whether the store can never hold what was sent, so that it makes no sense to send it again.

    True only for what Holdfast's own validation refused, here or in a control plane, and for what the database called
    bad data. A 413 without a limit was sent by a proxy, whose own limit can be raised."""
    if isinstance(error, TooLarge):
        return error.limit_bytes is not None
    return isinstance(error, InvalidInput) and not isinstance(error, Conflict)


class JobFailed(HoldfastError):
    """The job has failed for good."""

    def __init__(self, job: Job) -> None:
        self.job = job
        self.error: dict[str, Any] = job.last_error or {}
        said = ": ".join(str(self.error[part]) for part in ("code", "message") if self.error.get(part))
        super().__init__(f"job {job.id} ({job.task}) failed: {said or 'no error was recorded'}")


class JobCancelled(HoldfastError):
    """The job was cancelled."""

    def __init__(self, job: Job) -> None:
        self.job = job
        super().__init__(f"job {job.id} ({job.task}) was cancelled")


class LeaseLost(HoldfastError):
    """The lease of this attempt is gone: somebody else may be running the job."""
