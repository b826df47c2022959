"""The change check on SQLite: has anybody committed to the file since the last look? Microseconds, and no lock.

`PRAGMA data_version` is a number that another connection's commit changes. Ours is a connection of its own that only
reads, so every commit is another's, also of our own process.
"""

from __future__ import annotations

import sqlite3
from pathlib import Path

from holdfast.forks import before_fork, postponed


class ChangeCheck:
    def __init__(self, path: Path | str) -> None:
        self._path = Path(path).absolute()  # the working directory may change
        self._connection: sqlite3.Connection | None = None
        self._version: int | None = None
        self._opened: tuple[int, int] | None = None
        before_fork(self.close)

    def changed(self) -> bool:
        """True at the first look, and whenever the file has changed since the last; False while there is no file."""
        try:
            with postponed():
                version = self._look()
        except sqlite3.Error:  # not there yet, or being replaced: polling goes on, and the next look opens it anew
            self.close()
            return False
        changed, self._version = version != self._version, version
        return changed

    def close(self) -> None:
        if self._connection is not None:
            self._connection.close()
        self._connection = self._version = None

    def _look(self) -> int:
        if self._connection is not None and self._identify() != self._opened:  # replaced by another file
            self.close()
        if self._connection is None:
            self._opened = self._identify()
            self._connection = sqlite3.connect(
                f"{self._path.resolve().as_uri()}?mode=ro", uri=True, timeout=0, check_same_thread=False
            )
        [version] = self._connection.execute("PRAGMA data_version").fetchone()
        return int(version)

    def _identify(self) -> tuple[int, int] | None:
        try:
            found = self._path.stat()
        except OSError:
            return None
        return found.st_dev, found.st_ino
