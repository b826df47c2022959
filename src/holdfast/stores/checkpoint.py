"""Checkpoints of the SQLite file, one process at a time.

SQLite before 3.51.3 can corrupt a database when, right after a checkpoint that completed, a second one runs while
another connection's commit resets the WAL. So nobody checkpoints automatically (`wal_autocheckpoint = 0`); a process
that sees a WAL over the threshold takes an exclusive lock on a file beside the database, without waiting, and only
its holder checkpoints; it looks at the size again under the lock, so a second checkpoint never follows a complete one
before the WAL has been written anew; and the mode is TRUNCATE, which keeps writers out while it runs.
"""

from __future__ import annotations

import sqlite3
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from pathlib import Path
from typing import IO

THRESHOLD_BYTES = 4 * 1024 * 1024
LOOK_EVERY_COMMITS = 32
PATIENCE_MILLISECONDS = 100


class Checkpointer:
    def __init__(self, path: Path, threshold: int = THRESHOLD_BYTES) -> None:
        self._path = path
        self._threshold = threshold
        self._commits = 0

    def after_commit(self, connection: sqlite3.Connection) -> None:
        """Cheap in the usual case: every so many commits one look at a file's size.

        What was committed is committed, also when the disk has no room for a checkpoint: whoever asked must not hear
        that it failed. The worker's chore tries again, and tells."""
        self._commits += 1
        if self._commits % LOOK_EVERY_COMMITS == 0 and self.is_due():
            with suppress(sqlite3.OperationalError, OSError):
                self.checkpoint(connection)

    def checkpoint(self, connection: sqlite3.Connection) -> bool:
        """True when this process had the lock and the WAL was emptied."""
        with self._exclusive() as mine:
            if not mine or not self.is_due():
                return False
            before = connection.execute("PRAGMA busy_timeout").fetchone()[0]
            connection.execute(f"PRAGMA busy_timeout = {PATIENCE_MILLISECONDS}")
            try:
                busy, _frames, _moved = connection.execute("PRAGMA wal_checkpoint(TRUNCATE)").fetchone()
            finally:
                connection.execute(f"PRAGMA busy_timeout = {before}")
            return not busy

    def is_due(self) -> bool:
        """The WAL is large; one look at a file's size."""
        try:
            return self._beside("-wal").stat().st_size > self._threshold
        except FileNotFoundError:
            return False

    @contextmanager
    def _exclusive(self) -> Iterator[bool]:
        with self._beside("-checkpoint").open("w") as handle:
            yield _lock_at_once(handle)

    def _beside(self, suffix: str) -> Path:
        """Of the file that a symbolic link leads to: its log lies there, and all processes must share one lock."""
        place = self._path.resolve()
        return place.with_name(place.name + suffix)


def _lock_at_once(handle: IO[str]) -> bool:
    try:
        import fcntl
    except ImportError:  # no flock on Windows, which may enqueue and read: its WAL is left to the next Linux process
        return False
    try:
        fcntl.flock(handle, fcntl.LOCK_EX | fcntl.LOCK_NB)
    except BlockingIOError:
        return False
    return True
