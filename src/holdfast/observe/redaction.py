"""Keeps secrets out of a log line: by the name of the field, and inside the URLs of any text."""

from __future__ import annotations

import re
from collections.abc import MutableMapping
from typing import Any

from holdfast.settings import SECRET, mask_secrets

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
        return mask_secrets(value)
    if isinstance(value, dict):
        return {key: _shown(key, item) for key, item in value.items()}
    if isinstance(value, list | tuple):
        return [_shown(None, item) for item in value]
    if isinstance(value, BaseException):
        return mask_secrets(repr(value))
    return value
