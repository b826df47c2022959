"""Stored things as JSON and back, for whoever reads them over HTTP.

The names are those of the dataclasses, which are those of the columns; moments are ISO 8601 in UTC. What is read
ignores names that it does not know and takes the default for one that is missing: the other end may be newer or older.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import MISSING, fields, is_dataclass
from datetime import UTC, datetime
from enum import Enum
from types import UnionType
from typing import TYPE_CHECKING, Any, TypeVar, Union, get_args, get_origin, get_type_hints

if TYPE_CHECKING:
    from holdfast.domain.job import NewJob

Thing = TypeVar("Thing")

_plans: dict[type[Any], Mapping[str, tuple[Any, bool]]] = {}  # to read annotations takes long


def to_json(value: Any) -> Any:
    """Of a dataclass, or of a collection of them."""
    match value:
        case datetime():
            return iso(value)
        case Enum():
            return value.value
        case _ if is_dataclass(value) and not isinstance(value, type):
            return {item.name: to_json(getattr(value, item.name)) for item in fields(value)}
        case tuple() | list() | frozenset():
            return [to_json(item) for item in value]
        case Mapping():
            return {name: to_json(item) for name, item in value.items()}
    return value


def from_json(kind: type[Thing], value: Mapping[str, Any]) -> Thing:
    """A dataclass of this kind. Raises KeyError when something is missing that has no default."""
    given: dict[str, Any] = {}
    for name, (hint, required) in _plan(kind).items():
        if required or name in value:
            given[name] = _converted(hint, value[name])
    return kind(**given)


def new_job_to_json(job: NewJob) -> dict[str, Any]:
    """As `POST /api/v1/jobs` takes it. Every option is named, so that nothing the server knows of the task counts
    where the caller has decided."""
    options = {item.name: getattr(job, item.name) for item in fields(job) if item.init}
    options["retry"] = None if job.retry is None else job.retry.to_json()
    options["delay_seconds"] = options.pop("delay")
    return {name: to_json(value) for name, value in options.items() if value is not None}


def iso(moment: datetime) -> str:
    return moment.astimezone(UTC).isoformat(timespec="microseconds").replace("+00:00", "Z")


def _plan(kind: type[Any]) -> Mapping[str, tuple[Any, bool]]:
    """Of each field: its type, and whether there is no default."""
    if kind not in _plans:
        hints = get_type_hints(kind)
        _plans[kind] = {
            item.name: (hints[item.name], item.default is MISSING and item.default_factory is MISSING)
            for item in fields(kind)
            if item.init
        }
    return _plans[kind]


def _converted(hint: Any, value: Any) -> Any:
    if value is None:
        return None
    origin = get_origin(hint)
    if origin in (Union, UnionType):
        [hint] = [part for part in get_args(hint) if part is not type(None)][:1]
        return _converted(hint, value)
    if origin is tuple:
        return tuple(_converted(get_args(hint)[0], item) for item in value)
    if hint is datetime:
        return datetime.fromisoformat(value)
    if isinstance(hint, type) and issubclass(hint, Enum):
        return hint(value)
    if isinstance(hint, type) and is_dataclass(hint):
        return from_json(hint, value)
    return float(value) if hint is float else value
