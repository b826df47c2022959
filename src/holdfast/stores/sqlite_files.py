"""The files of an SQLite database: which ones a connection has open, and whether others are in their place.

A file that was replaced under a running process still accepts commits, which are lost with it. So every connection
stores the device and inode of the files it opened. A write transaction compares them once it has the write lock, a read
at its start. If they differ, the write is rejected, and the next call opens the new file. It does not if the log of the
previous file lies beside the new one: SQLite would apply that log to the new file and damage it.

SQLite follows symbolic links: the write-ahead log and its index lie beside the file that a link leads to.
"""

from __future__ import annotations

import os
import sqlite3
from contextlib import suppress
from dataclasses import dataclass

from holdfast.domain.errors import StoreUnavailable

_MAX_SCANNED = 4096  # descriptors

Identity = tuple[int, int] | None  # device and inode; None: there is no such file


def identify(path: str | os.PathLike[str]) -> Identity:
    try:
        found = os.stat(path)  # noqa: PTH116 - once per transaction
    except (FileNotFoundError, NotADirectoryError):
        return None
    return found.st_dev, found.st_ino


def is_open_here(file: Identity) -> bool:
    """Whether this process has the file open, by whatever connection."""
    try:
        descriptors = [int(name) for name in os.listdir("/dev/fd")]  # noqa: PTH208
    except OSError:  # no /proc is mounted
        descriptors = list(range(_MAX_SCANNED))
    for descriptor in descriptors:
        with suppress(OSError):
            found = os.fstat(descriptor)
            if (found.st_dev, found.st_ino) == file:
                return True
    return False


@dataclass(frozen=True, slots=True)
class OpenFiles:
    """The files that a connection has open."""

    place: str  # of the database, without symbolic links
    wal_path: str
    database: Identity
    wal: Identity
    shm: Identity

    @classmethod
    def at(cls, path: str) -> OpenFiles:
        place = os.path.realpath(path)
        wal_path = f"{place}-wal"
        return cls(place, wal_path, identify(path), identify(wal_path), identify(f"{place}-shm"))

    def is_beside(self, other: OpenFiles) -> bool:
        """The log or its index is the same file in both."""
        return (self.wal is not None and self.wal == other.wal) or (self.shm is not None and self.shm == other.shm)


class FileConnection(sqlite3.Connection):
    """A connection that records the files it opened."""

    files: OpenFiles | None = None

    def reads_current(self, path: str) -> bool:
        return self.files is None or identify(path) == self.files.database

    def writes_current(self, path: str) -> bool:
        """Compares the log too: commits go there first, and are lost with it."""
        files = self.files
        return files is None or (identify(path) == files.database and identify(files.wal_path) == files.wal)


class FileReplaced(StoreUnavailable):
    """Another file is in the place of the one that was open. Nothing was written."""

    def __init__(self, message: str, *, is_reopened: bool) -> None:
        super().__init__(message)
        self.is_reopened = is_reopened  # the next call opens the new file


def describe_replaced(path: str, opened: OpenFiles, found: OpenFiles) -> FileReplaced:
    wal, shm = opened.wal_path, f"{opened.place}-shm"
    if found.database == opened.database:
        return FileReplaced(
            f"{wal} was removed or replaced while {path} was open; nothing was written. Stop every process that"
            " uses the file: the last one saves what the log held. Then start them again",
            is_reopened=False,
        )
    if opened.is_beside(found):
        return FileReplaced(
            f"the SQLite file {path} was removed or replaced while it was open, and {wal} and {shm} beside it belong to"
            f" the previous file; nothing was written. Stop every process that uses the file, move {wal} and {shm}"
            " away, put the file in place and start the processes again",
            is_reopened=False,
        )
    if found.database is None:
        return FileReplaced(
            f"the SQLite file {path} was removed while it was open; nothing was written. Put a backup in its place, or"
            " restart the process to begin with an empty file",
            is_reopened=False,
        )
    return FileReplaced(
        f"the SQLite file {path} was replaced while it was open; nothing was written. Call again: the next call uses"
        " the new file. If another release of Holdfast made the new file, restart the process",
        is_reopened=True,
    )


def may_open(found: OpenFiles, opened: OpenFiles) -> bool:
    return found.database is not None and not opened.is_beside(found)
