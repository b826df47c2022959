"""A job as a caller asks for it, and as it is stored."""

from __future__ import annotations

from dataclasses import dataclass, field, fields
from datetime import datetime, timedelta
from typing import Any

from holdfast.domain import durations, spec
from holdfast.domain.errors import InvalidInput, TooLarge
from holdfast.domain.hot import hot_value
from holdfast.domain.lifecycle import State
from holdfast.domain.names import MAX_PRIORITY, check_id, check_integer, check_moment, check_name
from holdfast.domain.retry import RetryPolicy
from holdfast.domain.webhook import DELIVERY_TASK, check_webhook

DEFAULT_QUEUE = "default"
DEFAULT_LEASE_SECONDS = 60.0
DEFAULT_HEARTBEAT_SECONDS = 20.0
MAX_PAYLOAD_BYTES = 256 * 1024
MAX_BUDGET = 10_000


@dataclass(frozen=True, kw_only=True)  # without slots: another one like it is made of its dictionary
class NewJob:
    """A request to run a task. Construction validates everything: an instance is always storable.

    `unique=True` asks for one active job per (task, spec hash); `unique_key` names the key instead. `reuse_seconds`
    returns a success of the same spec that is younger than that instead of running again.
    """

    task: str
    payload: dict[str, Any] = field(default_factory=dict)
    version: str | None = None
    queue: str = DEFAULT_QUEUE
    priority: int = 0
    run_after: datetime | None = None
    delay: float | str | timedelta | None = None
    max_attempts: int = 3
    max_crashes: int = 3
    retry: RetryPolicy | None = None
    timeout_seconds: float | None = None
    lease_seconds: float = DEFAULT_LEASE_SECONDS
    source: str | None = None
    unique: bool = False
    unique_key: str | None = None
    reuse_seconds: float | None = None
    id: str | None = None
    traceparent: str | None = None
    replay_of: str | None = None
    # A URL, or an object with `url` and `on`; always the latter once it is here.
    webhook: str | dict[str, Any] | None = None
    # If given, only a job of these queues may stand in for this one; another that has the key or id is a Conflict.
    answered_by: tuple[str, ...] | None = None
    # Derived here, once: the stored text of the payload and the identity of the run.
    payload_json: str = field(init=False, repr=False)
    spec_hash: str = field(init=False, repr=False)

    def __post_init__(self) -> None:
        check_name(self.task, "task")
        if self.task == DELIVERY_TASK:
            raise InvalidInput("task", f"{DELIVERY_TASK} is the engine's own; give a job a webhook= instead")
        check_name(self.queue, "queue")
        check_integer(self.priority, "priority", -MAX_PRIORITY, MAX_PRIORITY)
        check_integer(self.max_attempts, "max_attempts", 1, MAX_BUDGET)
        check_integer(self.max_crashes, "max_crashes", 1, MAX_BUDGET)
        self._check_times()
        self._check_identity()
        self._check_payload()

    def _check_times(self) -> None:
        if self.run_after is not None:
            _set(self, "run_after", check_moment(self.run_after, "run_after"))
            if self.delay is not None:
                raise InvalidInput("delay", "cannot be given together with run_after; choose one")
        if self.delay is not None:
            _set(self, "delay", durations.seconds(self.delay, "delay"))
        if self.timeout_seconds is not None:
            _set(self, "timeout_seconds", _positive(self.timeout_seconds, "timeout_seconds"))
        _set(self, "lease_seconds", _positive(self.lease_seconds, "lease_seconds"))
        if self.reuse_seconds is not None:
            _set(self, "reuse_seconds", _positive(self.reuse_seconds, "reuse_seconds"))

    def _check_identity(self) -> None:
        for name in ("source", "unique_key"):
            value = getattr(self, name)
            if value is not None:
                check_name(value, name)
        if self.version is not None:
            _set(self, "version", check_name(str(self.version), "version"))
        if not isinstance(self.unique, bool):
            raise InvalidInput("unique", f"must be true or false, got {self.unique!r}")
        if self.retry is not None and not isinstance(self.retry, RetryPolicy):
            raise InvalidInput("retry", f"must be a RetryPolicy, got {type(self.retry).__name__}")
        if self.traceparent is not None:
            check_name(self.traceparent, "traceparent")
        for name in ("id", "replay_of"):
            if getattr(self, name) is not None:
                _set(self, name, check_id(getattr(self, name), name))
        if self.webhook is not None:
            _set(self, "webhook", check_webhook(self.webhook))

    def _check_payload(self) -> None:
        if not isinstance(self.payload, dict):
            raise InvalidInput("payload", f"must be a JSON object, got {type(self.payload).__name__}")
        spec_hash, text = self.identify(self.payload)
        _set(self, "spec_hash", spec_hash)
        _set(self, "payload_json", text)

    def identify(self, payload: dict[str, Any]) -> tuple[str, str]:
        """The spec hash of such a job with that payload, which is checked, and the payload's text."""
        spec_hash, text = spec.identified(self.task, self.version, payload)
        size = len(text) if text.isascii() else len(text.encode())
        if size > MAX_PAYLOAD_BYTES:
            raise TooLarge(
                "payload",
                f"is {size:,} bytes of JSON; the limit is {MAX_PAYLOAD_BYTES:,}. Store large data elsewhere and"
                " pass a reference",
                MAX_PAYLOAD_BYTES,
            )
        return spec_hash, text

    @property
    def key(self) -> str | None:
        """The value of the `unique_key` column."""
        if self.unique_key is not None:
            return self.unique_key
        return self.spec_hash if self.unique else None

    def with_traceparent(self, traceparent: str) -> NewJob:
        """This job as a part of that trace. All the rest was checked when it was made, and is not looked at again."""
        traced = self._another()
        _set(traced, "traceparent", traceparent)
        return traced

    def with_payload(self, payload: dict[str, Any]) -> NewJob:
        """Another job that differs in its payload alone, which is checked."""
        spec_hash, text = self.identify(payload)
        other = self._another()
        other.__dict__.update(payload=payload, spec_hash=spec_hash, payload_json=text)
        return other

    def _another(self) -> NewJob:
        other = object.__new__(NewJob)
        other.__dict__.update(self.__dict__)
        return other

    @classmethod
    def from_options(cls, options: dict[str, Any]) -> NewJob:
        """From loose options, as the command line and HTTP hand them in: unknown ones are named."""
        if not isinstance(options, dict):
            raise InvalidInput("job", f"must be an object, got {type(options).__name__}")
        known = sorted(item.name for item in fields(cls) if item.init)
        for name in options:
            if name not in known:
                raise InvalidInput(str(name), f"unknown option; known are {', '.join(known)}")
        if "task" not in options:
            raise InvalidInput("task", "is required")
        retry = options.get("retry")
        if isinstance(retry, dict):
            options = {**options, "retry": RetryPolicy.from_json(retry)}
        return cls(**options)


@hot_value(frozen=True, slots=True)
class Enqueued:
    """The answer to an enqueue: `created` is false when an existing job stands in for the new one."""

    id: str
    created: bool
    state: State


@dataclass(frozen=True, slots=True)
class Job:
    """A stored job, as everybody but its worker may see it: the lease token is not here."""

    id: str
    task: str
    task_version: str | None
    queue: str
    state: State
    priority: int
    run_after: datetime
    payload: dict[str, Any]
    spec_hash: str | None
    unique_key: str | None
    source: str | None
    attempt: int
    failures: int
    crashes: int
    max_attempts: int
    max_crashes: int
    retry: dict[str, Any] | None
    timeout_seconds: float | None
    lease_seconds: float
    lease_owner: str | None
    lease_expires_at: datetime | None
    claimed_at: datetime | None
    heartbeat_at: datetime | None
    cancel_requested_at: datetime | None
    progress: Any
    result: Any
    result_ref: str | None
    last_error: dict[str, Any] | None
    traceparent: str | None
    replay_of: str | None
    seq: int
    transition: str
    created_at: datetime
    updated_at: datetime
    started_at: datetime | None
    finished_at: datetime | None
    webhook: dict[str, Any] | None = None


@hot_value(frozen=True, slots=True)
class Claimed:
    """A job under a fresh lease. Only the worker that claimed it ever sees the token."""

    job_id: str
    task: str
    task_version: str | None
    queue: str
    source: str | None
    payload_json: str  # as it is stored: most who have a claimed job only hand it on
    attempt: int
    failures: int
    crashes: int
    max_attempts: int
    max_crashes: int
    timeout_seconds: float | None
    lease_seconds: float
    traceparent: str | None
    lease_token: str = field(repr=False)
    message_id: str | None = None  # of the message that named it, if one did
    # How long it had been due by the store's clock. None where the row does not tell: a job that was given back keeps
    # its due time, and with it its place in line, so that from there on it is not known since when it waited.
    due_seconds: float | None = None
    attempt_id: str = field(init=False, repr=False, compare=False)  # named several times in the life of every job
    # Names this claim of the attempt. A store that lost commits hands out the same attempt again, under a new lease.
    lease_id: str = field(init=False, repr=False, compare=False)

    def __post_init__(self) -> None:
        attempt_id = f"{self.job_id}.{self.attempt}"
        object.__setattr__(self, "attempt_id", attempt_id)
        # A quarter of the token distinguishes two leases. The token cannot be derived from it.
        object.__setattr__(self, "lease_id", f"{attempt_id}.{self.lease_token[:16]}")

    @property
    def payload(self) -> dict[str, Any]:
        """`Undecodable` where the stored text cannot be decoded."""
        payload: dict[str, Any] = spec.decode_json(self.payload_json)
        return payload


class ClaimedJobs(list[Claimed]):
    """What a claim brought. `again_in`: so many seconds from now a limited source that has work waiting may let another
    job in; None when nothing waits for that."""

    again_in: float | None = None


@dataclass(frozen=True, slots=True)
class AuditEvent:
    job_id: str
    seq: int
    at: datetime
    event: str
    from_state: str | None
    to_state: str | None
    attempt: int
    worker: str | None
    lease: str | None
    detail: dict[str, Any] | None


@dataclass(frozen=True, slots=True)
class Attempt:
    job_id: str
    attempt: int
    worker: str | None
    started_at: datetime
    finished_at: datetime | None
    outcome: str | None
    error: dict[str, Any] | None
    exit_code: int | None
    signal: int | None
    duration_ms: int | None
    cpu_ms: int | None
    max_rss_kb: int | None


def _set(job: NewJob, name: str, value: Any) -> None:
    object.__setattr__(job, name, value)


def _positive(value: float | str | timedelta, field_name: str) -> float:
    result = durations.seconds(value, field_name)
    if result <= 0:
        raise InvalidInput(field_name, f"must be more than zero, got {value!r}")
    return result
