"""The response cache in a SQLite file of its own, for `CACHE_URL`: several processes of one machine share it.

A cache must never be why a job fails. While the file cannot be used, nothing is found and nothing is kept, and that is
told once; a file that is damaged, or is somebody else's, stays as it is and is not tried again. Only what the caller
gets wrong is raised. The clock is the host's.
"""

from __future__ import annotations

import json
import logging
import os
import sqlite3
import threading
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any, TypeVar

from holdfast.domain.answers import Beat
from holdfast.domain.caching import check_place, checked_batch, checked_ttl, checked_value
from holdfast.domain.names import check_name
from holdfast.domain.sources import Cached
from holdfast.forks import after_fork, before_fork, fork_safe, leak, notice_fork, postponed
from holdfast.stores.sqlite_files import Identity, identify

BUSY_SECONDS = 5.0
FORGETS_EVERY = 50  # so many values kept, a batch of expired ones goes
FORGOTTEN_AT_ONCE = 500
_OURS = 0x48_46_43_31  # "HFC1", the application id of the file
_logger = logging.getLogger("holdfast")
_DAMAGED = (sqlite3.SQLITE_CORRUPT, sqlite3.SQLITE_NOTADB)
_BUSY = (sqlite3.SQLITE_BUSY, sqlite3.SQLITE_LOCKED)
_TABLE = """
    CREATE TABLE IF NOT EXISTS holdfast_cache (
      source TEXT NOT NULL, key TEXT NOT NULL, value TEXT NOT NULL, expires_at REAL NOT NULL,
      PRIMARY KEY (source, key))"""
_INDEX = "CREATE INDEX IF NOT EXISTS holdfast_cache_expires ON holdfast_cache (expires_at)"

Answer = TypeVar("Answer")


class _NotOurs(Exception):
    """A database, but not of a cache."""


class CacheFile:
    """`tell` hears why the file cannot be used, as a sentence."""

    def __init__(
        self,
        path: str | os.PathLike[str],
        *,
        tell: Callable[[str], None] = _logger.error,
        clock: Callable[[], float] = time.time,
        busy_seconds: float = BUSY_SECONDS,
    ) -> None:
        self._path = Path(path).absolute()  # the working directory may change
        self._tell = tell
        self._clock = clock
        self._busy_seconds = busy_seconds
        self._lock = fork_safe(threading.Lock())
        self._connection: sqlite3.Connection | None = None
        self._opened: Identity = None
        self._is_lost = False
        self._is_told = False
        self._puts = 0
        before_fork(self._before_fork)
        after_fork(self._after_fork)

    def cached(self, source: str, key: str, lease: Beat | None = None) -> Cached | None:  # noqa: ARG002
        """Who has the file needs no lease for this."""
        check_place(source, key)
        question = "SELECT value FROM holdfast_cache WHERE source = ? AND key = ? AND expires_at > ?"
        found = self._use(lambda c: c.execute(question, (source, key, self._clock())).fetchone(), None)
        return None if found is None else _read(found[0])

    def keep_cached(
        self,
        source: str,
        key: str,
        value: Any,
        ttl_seconds: float,
        lease: Beat | None = None,  # noqa: ARG002
    ) -> None:
        check_place(source, key)
        row = (source, key, checked_value(value), self._clock() + checked_ttl(ttl_seconds))
        self._use(lambda connection: self._put(connection, row), None)

    def forget_cached(self, limit: int) -> int:
        most = checked_batch(limit)
        return self._use(lambda connection: self._forget(connection, most), 0)

    def clear_cache(self, source: str, key: str | None = None) -> int:
        if key is not None:
            check_place(source, key)
        given: tuple[str, ...] = (check_name(source, "source"),) if key is None else (source, key)
        where = "source = ?" if key is None else "source = ? AND key = ?"
        return self._use(lambda c: c.execute(f"DELETE FROM holdfast_cache WHERE {where}", given).rowcount, 0)

    def close(self) -> None:
        """The next use opens it again."""
        with postponed(), self._lock:
            self._drop()

    def _before_fork(self) -> None:
        """A child must not inherit the connection: see `stores/sqlite.py`."""
        if self._lock.acquire(blocking=False):
            self._drop()
            self._lock.release()

    def _after_fork(self) -> None:
        if self._connection is not None:  # still in use after `forks.MAX_WAIT_SECONDS`
            leak(self._connection)
            self._connection, self._is_lost = None, True

    def _put(self, connection: sqlite3.Connection, row: tuple[Any, ...]) -> None:
        connection.execute(
            "INSERT OR REPLACE INTO holdfast_cache (source, key, value, expires_at) VALUES (?, ?, ?, ?)", row
        )
        self._puts += 1
        if self._puts % FORGETS_EVERY == 0:
            self._forget(connection, FORGOTTEN_AT_ONCE)

    def _forget(self, connection: sqlite3.Connection, most: int) -> int:
        expired = "SELECT rowid FROM holdfast_cache WHERE expires_at <= ? LIMIT ?"
        deleted = connection.execute(f"DELETE FROM holdfast_cache WHERE rowid IN ({expired})", (self._clock(), most))
        return deleted.rowcount

    def _use(self, act: Callable[[sqlite3.Connection], Answer], otherwise: Answer) -> Answer:
        notice_fork()
        with postponed(), self._lock:
            if self._is_lost:
                return otherwise
            try:
                answer = act(self._connected())
            except _NotOurs:
                self._give_up("it is another program's database; name a file of its own")
            except sqlite3.DatabaseError as error:
                code = getattr(error, "sqlite_errorcode", 0) & 0xFF
                if code in _DAMAGED:
                    self._give_up(f"it is damaged ({error}); delete it, and a new one is made at the next start")
                elif code not in _BUSY:
                    self._cannot(str(error))
            except OSError as error:
                self._cannot(str(error))
            else:
                self._is_told = False
                return answer
            return otherwise

    def _give_up(self, why: str) -> None:
        self._is_lost = True
        self._cannot(why)

    def _cannot(self, why: str) -> None:
        self._drop()
        if not self._is_told:
            self._is_told = True
            self._tell(f"the cache file {self._path} cannot be used, so jobs run without a cache: {why}")

    def _connected(self) -> sqlite3.Connection:
        if (
            self._connection is not None and identify(self._path) != self._opened
        ):  # removed, or replaced by another file
            self._drop()
        if self._connection is None:
            self._connection = self._open()
            self._opened = identify(self._path)
        return self._connection

    def _open(self) -> sqlite3.Connection:
        self._path.parent.mkdir(parents=True, exist_ok=True)
        connection = sqlite3.connect(
            self._path, timeout=self._busy_seconds, isolation_level=None, check_same_thread=False
        )
        try:
            self._prepare(connection)
        except BaseException:
            connection.close()
            raise
        return connection

    def _prepare(self, connection: sqlite3.Connection) -> None:
        connection.execute("BEGIN IMMEDIATE")  # before the first look: another may be making the file just now
        [(application,)] = connection.execute("PRAGMA application_id")
        [(tables,)] = connection.execute("SELECT count(*) FROM sqlite_master")
        if application != _OURS and tables:
            raise _NotOurs
        connection.execute(f"PRAGMA application_id = {_OURS}")
        connection.execute(_TABLE)
        connection.execute(_INDEX)
        connection.execute("COMMIT")
        _write_ahead(connection)
        connection.execute("PRAGMA synchronous = NORMAL")  # what the last second kept may be lost with the power

    def _drop(self) -> None:
        if self._connection is not None:
            self._connection.close()
            self._connection = None


def _write_ahead(connection: sqlite3.Connection) -> None:
    """The mode is the file's. SQLite does not wait here for another who is about to set it, and need not."""
    try:
        connection.execute("PRAGMA journal_mode = WAL")
    except sqlite3.OperationalError as error:
        if error.sqlite_errorcode & 0xFF not in _BUSY:
            raise


def _read(text: Any) -> Cached | None:
    """What nobody can read is not there."""
    try:
        return Cached(json.loads(text))
    except (ValueError, TypeError, RecursionError):
        return None
