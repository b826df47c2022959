"""The response cache: in the store, or with CACHE_URL in a SQLite file of its own."""

from __future__ import annotations

import threading
from collections.abc import Callable
from pathlib import Path
from typing import Protocol

from holdfast.forks import fork_safe
from holdfast.ports import CacheStore, Store


class OpenCache(Protocol):
    def store(self) -> CacheStore: ...

    def close(self) -> None: ...


class _InStore:
    def __init__(self, store: Callable[[], Store]) -> None:
        self._store = store

    def store(self) -> CacheStore:
        return self._store()

    def close(self) -> None:
        """It is not ours."""


class _InFile:
    """Opened by the first that looks."""

    def __init__(self, location: str) -> None:
        self._location = location
        self._lock = fork_safe(threading.Lock())
        self._opened: FileCache | None = None

    def store(self) -> CacheStore:
        with self._lock:
            if self._opened is None:
                self._opened = _open_file(self._location)
            return self._opened

    def close(self) -> None:
        with self._lock:
            opened, self._opened = self._opened, None
        if opened is not None:
            opened.close()


class FileCache(CacheStore, Protocol):
    def close(self) -> None: ...


def open_cache(location: str | None, store: Callable[[], Store]) -> OpenCache:
    return _InStore(store) if location is None else _InFile(location)


def _open_file(location: str) -> FileCache:
    from holdfast.stores.cache_file import CacheFile

    return CacheFile(Path(location).expanduser())
