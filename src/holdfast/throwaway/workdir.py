"""Temporary directories of servers, with a sweep for those a killed run left behind."""

from __future__ import annotations

import fcntl
import os
import shutil
import subprocess
import tempfile
import time
from pathlib import Path

from holdfast.throwaway.account import Account

PREFIX = "holdfast-throwaway-"
LOCK_NAME = "owner.lock"
# A directory is made a moment before it is locked; younger ones are left alone.
STALE_AFTER_SECONDS = 60.0


class Workdir:
    """A temporary directory that the server's account owns.

    Its owner holds a file lock in it for as long as the owner lives. The kernel
    drops that lock however the owner dies, so a directory nobody locks is stale.
    """

    def __init__(self, account: Account | None) -> None:
        base = _base_for(account)
        _sweep(base, os.geteuid() if account is None else account.uid)
        self.path = Path(tempfile.mkdtemp(prefix=PREFIX, dir=base))
        self._lock = _open_lock(self.path)
        fcntl.flock(self._lock, fcntl.LOCK_EX)
        if account is not None:
            os.chown(self.path, account.uid, account.gid)

    def remove(self) -> None:
        _remove(self.path)
        self.unlock()

    def unlock(self) -> None:
        """What the kernel does at the owner's death."""
        if self._lock >= 0:
            os.close(self._lock)
            self._lock = -1


def _base_for(account: Account | None) -> Path:
    """The usual temporary directory, or /tmp when the account cannot get into the usual one."""
    usual = Path(tempfile.gettempdir())
    return usual if account is None or account.can_enter(usual) else Path("/tmp")


def _open_lock(directory: Path) -> int:
    return os.open(directory / LOCK_NAME, os.O_RDWR | os.O_CREAT | os.O_NOFOLLOW, 0o600)


def _sweep(base: Path, owner_uid: int) -> None:
    for directory in base.glob(f"{PREFIX}*"):
        # Another run may sweep the same directory at the same time: a miss is fine.
        try:
            if _is_stale(directory, owner_uid):
                _remove(directory)
        except OSError:
            continue


def _remove(directory: Path) -> None:
    for mounted in filter(os.path.ismount, directory.glob("*")):
        # At once, even if somebody has a file open there: it is gone when the last one is closed.
        subprocess.run(["umount", "--lazy", mounted], stdin=subprocess.DEVNULL, capture_output=True, check=False)
    shutil.rmtree(directory, ignore_errors=True)


def _is_stale(directory: Path, owner_uid: int) -> bool:
    status = directory.lstat()
    if status.st_uid != owner_uid or time.time() - status.st_mtime < STALE_AFTER_SECONDS:
        return False
    lock = _open_lock(directory)
    try:
        fcntl.flock(lock, fcntl.LOCK_EX | fcntl.LOCK_NB)
    except BlockingIOError:
        return False
    finally:
        os.close(lock)
    return True
