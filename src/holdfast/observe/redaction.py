"""Keeps secrets out of a log line: by the name of the field, and in any text by the form that secrets have.

Those are the passwords of URLs and of connection strings, whatever follows `Authorization`, bearer tokens (whose id
stays, so that people can tell which one it was) and lease tokens. A hash of the same length is only shown in a field
that says that it is one. What is neither text nor a plain value is shown as its text: whoever renders the line would
turn it into one behind our back.
"""

from __future__ import annotations

import re
from collections.abc import Mapping, MutableMapping, Set
from datetime import date, time, timedelta
from typing import Any

from holdfast.settings import SECRET, mask_secrets

MOST_DEEP = 20
_TOKEN = re.compile(r"(\bhf_[0-9a-f]{16}_)[0-9a-z]+", re.IGNORECASE)
_LEASE = re.compile(r"\b[0-9a-f]{64}\b", re.IGNORECASE)
_HASH_NAME = re.compile(r"(hash|digest|checksum|sha256)$", re.IGNORECASE)
_SECRET_NAME = re.compile(r"token|passw|secret|credential|authorization|api_?key|cookie", re.IGNORECASE)
# The words alone, where what follows is too long to be one; a header, or an element of a dictionary that was printed.
# Tokens of ours have been dealt with before.
_SCHEME = re.compile(r"\b(bearer|basic|digest)(\s+)(?!hf_)[\w.~+/=-]{16,}", re.IGNORECASE)
_HEADER = re.compile(
    r"""(\bauthorization["']?\s*[:=]\s*["']?(?:(?:bearer|basic|digest)\s+)?+)(?!hf_)[^\s"',}]+""", re.IGNORECASE
)
# password=hunter2 of a connection string, 'password': 'hunter2' of a dictionary.
_NAMED = (
    r"(\b[\w-]{0,40}(?:passw(?:or)?d|pwd|passphrase|secret|api_?key|(?:access|refresh|lease|auth)_token)"
    r"""[\w-]{0,40}\\*["']?\s*"""
)
_IN_QUOTES = r"""(\\*["']).*?(?<!\\)\2"""  # that may themselves stand in quotes, and be escaped there
_ASSIGNED = re.compile(rf"{_NAMED}=\s*)(?:{_IN_QUOTES}|[^\s&,;)]+)", re.IGNORECASE | re.DOTALL)
_QUOTED = re.compile(rf"{_NAMED}:\s*b?){_IN_QUOTES}", re.IGNORECASE | re.DOTALL)
_PLAIN = (bool, int, float, type(None), date, time, timedelta)


def redact(_logger: object, _method: str, line: MutableMapping[str, Any]) -> MutableMapping[str, Any]:
    """A structlog processor; the last one before the renderer, so that nothing is added behind its back."""
    for name, value in line.items():
        line[name] = _shown(name, value)
    return line


def _shown(name: object, value: Any, depth: int = 0) -> Any:
    if value is not None and isinstance(name, str) and _SECRET_NAME.search(name):
        return SECRET
    if isinstance(value, str):
        is_hash = isinstance(name, str) and _HASH_NAME.search(name)
        return mask_secrets(value) if is_hash else masked(str(value))
    if isinstance(value, _PLAIN):
        return value
    if depth < MOST_DEEP and isinstance(value, Mapping):
        return {_shown_name(key): _shown(key, item, depth + 1) for key, item in value.items()}
    if depth < MOST_DEEP and isinstance(value, list | tuple | Set):
        return [_shown(None, item, depth + 1) for item in value]
    return masked(_text(value))


def _shown_name(name: object) -> object:
    return masked(name) if isinstance(name, str) else name if isinstance(name, _PLAIN) else masked(_text(name))


def _text(value: object) -> str:
    if isinstance(value, bytes | bytearray):
        return bytes(value).decode(errors="replace")
    try:
        return repr(value) if isinstance(value, BaseException) else str(value)
    except Exception as error:  # a line is written whatever is wrong with one of its fields
        return f"<{type(value).__name__}: {type(error).__name__}>"


def masked(text: str) -> str:
    """A text without what looks like a secret."""
    text = _TOKEN.sub(rf"\1{SECRET}", mask_secrets(text))
    text = _SCHEME.sub(rf"\1\2{SECRET}", text)
    if "=" in text or ":" in text:
        text = _HEADER.sub(rf"\1{SECRET}", text)
        text = _QUOTED.sub(rf"\1{SECRET}", _ASSIGNED.sub(rf"\1{SECRET}", text))
    return _LEASE.sub(SECRET, text)
