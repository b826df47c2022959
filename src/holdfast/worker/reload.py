"""`--reload`: notice that the code changed. Only the runners have read it, so only they are replaced."""

from __future__ import annotations

import os
from collections.abc import Callable, Iterator
from pathlib import Path

LOOK_EVERY_SECONDS = 0.5
_LEFT_OUT = frozenset({"__pycache__", "node_modules", "site-packages", "venv", "build", "dist"})


def source_files(folder: Path) -> Iterator[str]:
    for path, folders, files in os.walk(folder):
        folders[:] = [name for name in folders if name not in _LEFT_OUT and not name.startswith(".")]
        yield from (f"{path}/{name}" for name in files if name.endswith(".py"))


def stamps(folder: Path) -> dict[str, tuple[int, int]]:
    found = {}
    for name in source_files(folder):
        try:
            status = os.stat(name)  # noqa: PTH116 - thousands of them, twice a second
        except OSError:
            continue
        found[name] = (status.st_mtime_ns, status.st_size)
    return found


class Reload:
    def __init__(self, folder: Path, changed: Callable[[], None]) -> None:
        self._folder = folder
        self._changed = changed
        self._seen = stamps(folder)
        self._look_at = 0.0

    def step(self, now: float) -> None:
        if now < self._look_at:
            return
        self._look_at = now + LOOK_EVERY_SECONDS
        found = stamps(self._folder)
        if found != self._seen:
            self._seen = found
            self._changed()

    def wake_at(self) -> float:
        return self._look_at
