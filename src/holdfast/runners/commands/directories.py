"""A directory of its own for each run of a command, which is gone afterwards, also when nobody was left to remove it.

Whoever runs the command removes its directory. A runner that is killed outright cannot: so it holds a lock on it, which
ends with the process whatever ended it, and which no child inherits. A directory of ours that nobody locks is left
over, and whoever sees one removes it: the supervisor when a runner was killed, a runner when it starts.

The temporary directory is shared with neighbours. What is removed has the name that only we give, is a directory and no
link, and belongs to this user.
"""

from __future__ import annotations

import contextlib
import fcntl
import os
import re
import shutil
import stat
import tempfile
from collections.abc import Iterator
from pathlib import Path

PREFIX = "holdfast-run-"
_NAME = re.compile(rf"{PREFIX}[a-z0-9_]{{8}}", re.ASCII)
_FLAGS = os.O_RDONLY | os.O_DIRECTORY | os.O_NOFOLLOW | os.O_CLOEXEC


@contextlib.contextmanager
def own_directory() -> Iterator[str]:
    path, lock = _locked()
    try:
        yield path
    finally:
        shutil.rmtree(path, ignore_errors=True)
        os.close(lock)


def _locked() -> tuple[str, int]:
    while True:
        path = tempfile.mkdtemp(prefix=PREFIX)
        try:
            lock = os.open(path, _FLAGS)
        except FileNotFoundError:
            continue  # somebody took it for left over, in the moment before it was locked
        fcntl.flock(lock, fcntl.LOCK_EX)
        if _is_at(path, lock):
            return path, lock
        os.close(lock)


def remove_left_over() -> None:
    """Those that nobody holds. Nothing depends on it: what cannot be removed now is met again."""
    with contextlib.suppress(OSError), os.scandir(tempfile.gettempdir()) as entries:
        for entry in entries:
            if _NAME.fullmatch(entry.name):
                with contextlib.suppress(OSError):
                    _remove_unless_held(entry.path)


def _remove_unless_held(path: str) -> None:
    lock = os.open(path, _FLAGS)
    try:
        if os.fstat(lock).st_uid != os.geteuid():
            return
        fcntl.flock(lock, fcntl.LOCK_EX | fcntl.LOCK_NB)
        if _is_at(path, lock):
            shutil.rmtree(path, ignore_errors=True)
    finally:
        os.close(lock)


def _is_at(path: str, descriptor: int) -> bool:
    try:
        found = Path(path).lstat()
    except FileNotFoundError:
        return False
    return stat.S_ISDIR(found.st_mode) and os.path.samestat(found, os.fstat(descriptor))
