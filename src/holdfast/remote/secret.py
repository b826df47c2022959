"""The bearer token of a program that runs for long: as it was given, or in a file (`@/path/to/file`).

A file is read again when the control plane no longer accepts what was in it. So a token can be rotated while jobs run:
write the new one to the file, and the next question goes with it; the leases are the credential's, and stay.
"""

from __future__ import annotations

import re
from pathlib import Path

from holdfast.domain.errors import ConfigurationError

FILE = "@"
_TOKEN = re.compile(r"[\x21-\x7e]{1,500}")


class Secret:
    def __init__(self, given: str | None) -> None:
        if not given:
            raise ConfigurationError(
                "a control plane wants a token: give token=…, --token or HOLDFAST_TOKEN; `holdfast tokens create` makes"
                " one"
            )
        self._file = Path(given.removeprefix(FILE)) if given.startswith(FILE) else None
        self._text = _checked(given if self._file is None else _read(self._file))

    def __repr__(self) -> str:
        return "Secret(***)"

    def header(self) -> str:
        return f"Bearer {self._text}"

    def is_another(self, header: str) -> bool:
        """Is there another one than this, which was refused?"""
        if self._file is not None:
            self._text = _checked(_read(self._file))
        return self.header() != header


def _read(file: Path) -> str:
    try:
        return file.read_text(encoding="ascii").strip()
    except (OSError, ValueError) as error:
        said = error.strerror if isinstance(error, OSError) else "it is not plain text"
        raise ConfigurationError(f"the token's file {file} cannot be read: {said}") from error


def _checked(token: str) -> str:
    if not _TOKEN.fullmatch(token):
        raise ConfigurationError("the token holds characters that no token has: give it as it was printed")
    return token
