"""A message, as it was read: which job it names, if it can be understood at all."""

from __future__ import annotations

import re
from collections.abc import Sequence
from dataclasses import dataclass

from holdfast.domain.errors import InvalidInput
from holdfast.domain.names import check_id

SHOWN_CHARACTERS = 500
_ID = re.compile(r"[0-9]{1,20}-[0-9]{1,20}")


@dataclass(frozen=True, slots=True)
class Message:
    queue: str
    id: str
    job_id: str | None  # None: it cannot be understood
    text: str  # what it says, for people to look at


def message(queue: bytes | str, message_id: bytes, fields: Sequence[bytes]) -> Message:
    said = dict(zip(fields[::2], fields[1::2], strict=False))
    text = str(said)[:SHOWN_CHARACTERS]
    return Message(_text(queue), _text(message_id), _job_id(said.get(b"job_id", b"")), text)


def is_message_id(value: str) -> bool:
    """Reports carry what clients say: only what can be an id is asked about."""
    return _ID.fullmatch(value) is not None


def moment(message_id: str) -> tuple[int, int]:
    """Ids in the order of their stream."""
    milliseconds, _, number = message_id.partition("-")
    return int(milliseconds), int(number)


def _job_id(value: bytes) -> str | None:
    try:
        return check_id(value.decode("ascii"), "job_id")
    except (UnicodeDecodeError, InvalidInput):
        return None


def _text(value: bytes | str) -> str:
    return value if isinstance(value, str) else value.decode("utf-8", "replace")
