"""Records: the deduplicated output of jobs. `domain/dedupe.py` makes their keys."""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass, replace
from datetime import datetime
from enum import StrEnum
from typing import Any

from holdfast.domain.errors import InvalidInput, TooLarge
from holdfast.domain.names import MAX_NAME, check_name
from holdfast.domain.spec import check_json, encode_json

EXTERNAL = "ext_"  # and the external id: the key of a record that has one
SINGLE_KEY = "single"  # of the one row that `upsert_single` keeps for its scope, under source ''
MAX_RECORDS = 1_000  # of one call
MAX_DATA_BYTES = 256 * 1024
MAX_CALL_CHARACTERS = 16 * 1024 * 1024
MAX_KEY = MAX_NAME + len(EXTERNAL)


@dataclass(frozen=True, slots=True, kw_only=True)
class NewRecord:
    """`replace`: the last one wins, whatever the strengths (`upsert_single`); else the stronger one."""

    scope: str
    source: str = ""
    dedupe_key: str
    data: Any
    external_id: str | None = None
    strength: float = 0.0
    replace: bool = False


class Kept(StrEnum):
    """What became of a record that was written."""

    CREATED = "created"
    REPLACED = "replaced"
    EXISTING = "existing"  # what was there is as strong or stronger, and stays


@dataclass(frozen=True, slots=True)
class Written:
    id: str
    dedupe_key: str
    kept: Kept


@dataclass(frozen=True, slots=True, kw_only=True)
class Record:
    id: str
    scope: str
    source: str
    dedupe_key: str
    external_id: str | None
    strength: float
    data: Any
    job_id: str | None
    attempt: int | None
    created_at: datetime
    updated_at: datetime


def check_records(new: Sequence[NewRecord]) -> list[tuple[NewRecord, str]]:
    """Each with its data as JSON text. Of several, what is said of one names it."""
    if len(new) > MAX_RECORDS:
        raise InvalidInput("records", f"must be at most {MAX_RECORDS:,} at once, got {len(new):,}; call it again")
    alone = len(new) == 1
    checked = [_checked(record, "" if alone else f"records.{number}.") for number, record in enumerate(new)]
    if sum(len(data) for _, data in checked) > MAX_CALL_CHARACTERS:
        rule = f"have more than {MAX_CALL_CHARACTERS:,} characters of data in all; write them in several calls"
        raise TooLarge("records", rule, MAX_CALL_CHARACTERS)
    return checked


def _checked(record: NewRecord, prefix: str) -> tuple[NewRecord, str]:
    check_name(record.scope, f"{prefix}scope")
    if record.source != "":
        check_name(record.source, f"{prefix}source")
    check_key(record.dedupe_key, f"{prefix}dedupe_key")
    if record.external_id is not None:
        check_name(record.external_id, f"{prefix}external_id")
    if type(record.replace) is not bool:
        raise InvalidInput(f"{prefix}replace", f"must be true or false, got {type(record.replace).__name__}")
    strength = check_strength(record.strength, f"{prefix}strength")
    return replace(record, strength=strength), _checked_data(record.data, f"{prefix}data")


def _checked_data(data: Any, field: str) -> str:
    check_json(data, field)
    text = encode_json(data)
    if len(text.encode()) > MAX_DATA_BYTES:
        rule = f"must be at most {MAX_DATA_BYTES:,} bytes of JSON; save a file with ctx.save and record its reference"
        raise TooLarge(field, rule, MAX_DATA_BYTES)
    return text


def check_key(value: Any, field: str = "dedupe_key") -> str:
    """`ext_` may stand before an external id of the full length."""
    if isinstance(value, str) and MAX_NAME < len(value) <= MAX_KEY and value.startswith(EXTERNAL):
        check_name(value.removeprefix(EXTERNAL), field)
        return value
    return check_name(value, field)


def check_strength(value: Any, field: str = "strength") -> float:
    if isinstance(value, bool) or not isinstance(value, int | float):
        raise InvalidInput(field, f"must be a number, got {type(value).__name__}")
    try:
        number = float(value)
    except OverflowError:  # an integer of hundreds of digits
        number = math.inf
    if not math.isfinite(number):
        raise InvalidInput(field, f"must be a finite number, got {number}")
    return number
