"""The change check on SQLite: has anybody committed to the file since the last look? Microseconds, and no lock.

`PRAGMA data_version` is a number that another connection's commit changes. Ours is a connection of its own that only
reads, so every commit is another's, also of our own process.
"""

from __future__ import annotations

import sqlite3
from pathlib import Path


class ChangeCheck:
    def __init__(self, path: Path | str) -> None:
        self._path = Path(path)
        self._connection: sqlite3.Connection | None = None
        self._version: int | None = None

    def changed(self) -> bool:
        """True at the first look, and whenever the file has changed since the last; False while there is no file."""
        try:
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
        if self._connection is None:
            self._connection = sqlite3.connect(
                f"{self._path.resolve().as_uri()}?mode=ro", uri=True, timeout=0, check_same_thread=False
            )
        [version] = self._connection.execute("PRAGMA data_version").fetchone()
        return int(version)
