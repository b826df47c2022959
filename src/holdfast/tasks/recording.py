"""From what user code calls a record to what is written: checked, converted to JSON, and with its key."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from typing import Any

from holdfast.domain.dedupe import dedupe_key
from holdfast.domain.errors import InvalidInput
from holdfast.domain.names import check_name
from holdfast.domain.record import SINGLE_KEY, NewRecord, check_strength
from holdfast.tasks.results import result_to_json

_NAMES = ("scope", "source", "data", "external_id", "strength")


def new_record(scope: str, source: str, data: Any, external_id: str | None = None, strength: float = 0.0) -> NewRecord:
    as_json = data_to_json(data)
    return NewRecord(
        scope=check_name(scope, "scope"),
        source=check_name(source, "source"),
        dedupe_key=dedupe_key(data if isinstance(data, Mapping) else as_json, external_id),
        data=as_json,
        external_id=external_id,
        strength=check_strength(strength),
    )


def single_record(scope: str, data: Any) -> NewRecord:
    return NewRecord(scope=check_name(scope, "scope"), dedupe_key=SINGLE_KEY, data=data_to_json(data), replace=True)


def listed_records(records: Iterable[Mapping[str, Any]]) -> list[NewRecord]:
    """An error names the index of the one that is wrong."""
    return [_listed(index, given) for index, given in enumerate(records)]


def _listed(index: int, given: Any) -> NewRecord:
    if not isinstance(given, Mapping):
        raise InvalidInput(f"records[{index}]", f"must be a mapping of what record takes, got {type(given).__name__}")
    for name in given:
        if name not in _NAMES:
            raise InvalidInput(f"records[{index}].{name}", f"unknown; known are {', '.join(_NAMES)}")
    for name in _NAMES[:3]:
        if name not in given:
            raise InvalidInput(f"records[{index}].{name}", "is missing")
    try:
        return new_record(**given)
    except InvalidInput as error:
        raise InvalidInput(f"records[{index}].{error.field}", error.rule) from None


def data_to_json(data: Any) -> Any:
    """As results are: dataclasses, models, Decimals and datetimes are converted."""
    try:
        return result_to_json(data)
    except InvalidInput as error:
        raise InvalidInput(f"data{error.field.removeprefix('result')}", error.rule) from error
