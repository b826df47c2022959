"""Keeps secrets out of a log line: by the name of the field, and in any text by the form that secrets have.

Those are the passwords of URLs, bearer tokens (whose id stays, so that people can tell which one it was) and lease
tokens. A hash of the same length is only shown in a field that says that it is one.
"""

from __future__ import annotations

import re
from collections.abc import MutableMapping
from typing import Any

from holdfast.settings import SECRET, mask_secrets

_BEARER = re.compile(r"(\bhf_[0-9a-f]{16}_)[0-9a-z]+", re.IGNORECASE)
_LEASE = re.compile(r"\b[0-9a-f]{64}\b", re.IGNORECASE)
_HASH_NAME = re.compile(r"(hash|digest|checksum|sha256)$", re.IGNORECASE)
_SECRET_NAME = re.compile(r"token|passw|secret|credential|authorization|api_?key", re.IGNORECASE)


def redact(_logger: object, _method: str, line: MutableMapping[str, Any]) -> MutableMapping[str, Any]:
    """A structlog processor; the last one before the renderer, so that nothing is added behind its back."""
    for name, value in line.items():
        line[name] = _shown(name, value)
    return line


def _shown(name: object, value: Any) -> Any:
    if value is not None and isinstance(name, str) and _SECRET_NAME.search(name):
        return SECRET
    if isinstance(value, str):
        is_hash = isinstance(name, str) and _HASH_NAME.search(name)
        return mask_secrets(value) if is_hash else masked(value)
    if isinstance(value, dict):
        return {key: _shown(key, item) for key, item in value.items()}
    if isinstance(value, list | tuple):
        return [_shown(None, item) for item in value]
    if isinstance(value, BaseException):
        return masked(repr(value))
    return value


def masked(text: str) -> str:
    """A text without what looks like a secret."""
    return _LEASE.sub(SECRET, _BEARER.sub(rf"\1{SECRET}", mask_secrets(text)))
