"""The options of tasks and of single jobs: which there are, their rules, and what they become on a `NewJob`.

Options are kept as mappings of those that were named, because "not named" means "as the group, the app or the settings
say", and None, where it is allowed, means "none, whatever they say".
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from datetime import datetime, timedelta
from typing import Any, TypedDict

from holdfast.domain import durations
from holdfast.domain.errors import InvalidInput
from holdfast.domain.job import MAX_BUDGET
from holdfast.domain.manifest import OnLostLease
from holdfast.domain.names import MAX_PRIORITY, check_id, check_integer, check_moment, check_name
from holdfast.domain.retry import KINDS, RetryPolicy
from holdfast.domain.webhook import check_webhook

Duration = float | str | timedelta
Retry = RetryPolicy | Duration
Check = Callable[[Any, str], Any]


class SharedOptions(TypedDict, total=False):
    """What a task may say once and `using` may change for one job."""

    queue: str
    priority: int
    max_attempts: int
    max_crashes: int
    retry: Retry | None
    timeout: Duration | None
    lease: Duration | None
    source: str | None
    webhook: str | Mapping[str, Any] | None


class CommandOptions(SharedOptions, total=False):
    version: str | int | None
    on_lost_lease: OnLostLease | str


class TaskOptions(CommandOptions, total=False):
    no_retry: type[BaseException] | tuple[type[BaseException], ...]


class JobOptions(SharedOptions, total=False):
    run_after: datetime | None
    delay: Duration | None
    unique: bool
    unique_key: str | None
    reuse: Duration | None
    id: str | None
    connection: Any
    traceparent: str | None


def task_options(given: Mapping[str, Any]) -> dict[str, Any]:
    """The options of a task or a group, checked."""
    return _checked(given, _TASK)


def command_options(given: Mapping[str, Any]) -> dict[str, Any]:
    return _checked(given, _COMMAND)


def job_options(given: Mapping[str, Any]) -> dict[str, Any]:
    """The options of one job, checked."""
    checked = _checked(given, _JOB)
    if checked.get("run_after") is not None and checked.get("delay") is not None:
        raise InvalidInput("delay", "cannot be given together with run_after; choose one")
    return checked


def on_new_job(options: Mapping[str, Any]) -> dict[str, Any]:
    """The part of the options that a `NewJob` takes, under its names."""
    return {_NEW_JOB_NAMES[name]: value for name, value in options.items() if name in _NEW_JOB_NAMES}


def in_manifest(options: Mapping[str, Any]) -> dict[str, Any]:
    """The defaults that a task's author named, as JSON."""
    named = {name: value for name, value in options.items() if name in _SHARED and value is not None}
    return {
        name: value.to_json() if isinstance(value, RetryPolicy) else value for name, value in on_new_job(named).items()
    }


def _checked(given: Mapping[str, Any], rules: Mapping[str, Check]) -> dict[str, Any]:
    for name in given:
        if name not in rules:
            raise InvalidInput(name, f"unknown option; known are {', '.join(sorted(rules))}")
    return {name: rules[name](value, name) for name, value in given.items()}


def positive_duration(value: Any, name: str) -> float:
    result = durations.seconds(value, name)
    if result <= 0:
        raise InvalidInput(name, f"must be more than zero, got {value!r}")
    return result


def _or_none(check: Check) -> Check:
    return lambda value, name: None if value is None else check(value, name)


def _integer(low: int, high: int) -> Check:
    return lambda value, name: check_integer(value, name, low, high)


def _retry(value: Any, name: str) -> RetryPolicy:
    """A policy; the name of a kind; or a duration, which is how long to wait each time."""
    if isinstance(value, RetryPolicy):
        return value
    if value in KINDS:
        return RetryPolicy(value)
    try:
        return RetryPolicy("fixed", base=durations.seconds(value, name))
    except InvalidInput as error:
        rule = f"must be a RetryPolicy, one of {', '.join(KINDS)}, or the time to wait, such as '30s'"
        raise InvalidInput(name, f"{rule} ({error.rule})") from None


def _exceptions(value: Any, name: str) -> tuple[type[BaseException], ...]:
    classes = tuple(value) if isinstance(value, tuple | list) else (value,)
    for item in classes:
        if not (isinstance(item, type) and issubclass(item, BaseException)):
            raise InvalidInput(name, f"must be exception classes, got {item!r}")
    return classes


def _version(value: Any, name: str) -> str:
    return check_name(str(value) if isinstance(value, int) and not isinstance(value, bool) else value, name)


def _on_lost_lease(value: Any, name: str) -> OnLostLease:
    try:
        return OnLostLease(value)
    except ValueError:
        raise InvalidInput(name, f"must be one of {', '.join(OnLostLease)}, got {value!r}") from None


def _switch(value: Any, name: str) -> bool:
    if not isinstance(value, bool):
        raise InvalidInput(name, f"must be True or False, got {value!r}")
    return value


def _anything(value: Any, name: str) -> Any:  # noqa: ARG001
    return value


_SHARED: dict[str, Check] = {
    "queue": check_name,
    "priority": _integer(-MAX_PRIORITY, MAX_PRIORITY),
    "max_attempts": _integer(1, MAX_BUDGET),
    "max_crashes": _integer(1, MAX_BUDGET),
    "retry": _or_none(_retry),
    "timeout": _or_none(positive_duration),
    "lease": _or_none(positive_duration),
    "source": _or_none(check_name),
    "webhook": _or_none(check_webhook),
}
_COMMAND = {**_SHARED, "version": _or_none(_version), "on_lost_lease": _on_lost_lease}
_TASK = {**_COMMAND, "no_retry": _exceptions}
_JOB: dict[str, Check] = {
    **_SHARED,
    "run_after": _or_none(check_moment),
    "delay": _or_none(durations.seconds),
    "unique": _switch,
    "unique_key": _or_none(check_name),
    "reuse": _or_none(positive_duration),
    "id": _or_none(check_id),
    "connection": _anything,  # the store knows what it can borrow
    "traceparent": _or_none(check_name),
}
_RENAMED = {"timeout": "timeout_seconds", "lease": "lease_seconds", "reuse": "reuse_seconds"}
_NEW_JOB_NAMES = {name: _RENAMED.get(name, name) for name in (*_JOB, "version") if name != "connection"}
