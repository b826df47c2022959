"""A disk that can be full: a tmpfs of a given size, for the data of a throwaway Postgres or an SQLite file.

It is mounted in a work directory like those of throwaway servers, in which its owner holds a lock for as long as it
lives: what a killed owner leaves mounted is unmounted and removed at the next start of any throwaway server or disk.
"""

from __future__ import annotations

import atexit
import errno
import os
import shutil
import subprocess
import sys
from pathlib import Path
from types import TracebackType
from typing import Self

from holdfast.throwaway.account import server_account
from holdfast.throwaway.workdir import Workdir

MEBIBYTE = 1024 * 1024
SMALLEST_CHUNK = 4096
LARGEST_CHUNK = 64 * MEBIBYTE
FILLER = "filler"


class SmallDisk:
    """Belongs to the account that throwaway servers run as. `close` unmounts it, whoever still has files open there."""

    def __init__(self, size: int = 512 * MEBIBYTE) -> None:
        account = server_account()
        self._workdir = Workdir(account)
        self.path = self._workdir.path / "disk"
        self.path.mkdir()
        self._owner_pid = os.getpid()
        atexit.register(self.close)
        try:
            _mount(self.path, size)
        except BaseException:
            self.close()
            raise
        if account is not None:
            os.chown(self.path, account.uid, account.gid)

    @staticmethod
    def available() -> str | None:
        """None when it can be had here, else why not: found out by making one."""
        if sys.platform != "linux":
            return "only Linux has tmpfs"
        if os.geteuid() != 0:
            return "only root may mount a disk"
        if shutil.which("mount") is None:
            return "there is no program `mount`"
        try:
            SmallDisk(MEBIBYTE).close()
        except OSError as error:
            return f"a tmpfs cannot be mounted here: {error}"
        return None

    @property
    def free_bytes(self) -> int:
        found = os.statvfs(self.path)
        return found.f_bavail * found.f_frsize

    def fill(self, leave: int = 0) -> int:
        """Take all the room there is, but for so many bytes; how many that were. Again: what has become free since."""
        filler = os.open(self.path / FILLER, os.O_WRONLY | os.O_CREAT, 0o600)
        try:
            taken = _take_all(filler)
            os.ftruncate(filler, max(0, os.fstat(filler).st_size - leave))
            return taken - leave
        finally:
            os.close(filler)

    def free(self) -> int:
        """Give back what was taken; how many bytes that were."""
        filler = self.path / FILLER
        try:
            size = filler.stat().st_size
            filler.unlink()
        except FileNotFoundError:
            return 0
        return size

    def close(self) -> None:
        """Unmount, and remove what was on it. Safe to call twice."""
        if os.getpid() != self._owner_pid:
            return  # a forked child runs our exit hook too, but the disk is not its own
        atexit.unregister(self.close)
        self._workdir.remove()

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self.close()


def _mount(path: Path, size: int) -> None:
    command = ["mount", "-t", "tmpfs", "-o", f"size={size},mode=0700", "holdfast", str(path)]
    done = subprocess.run(command, stdin=subprocess.DEVNULL, capture_output=True, text=True, check=False)
    if done.returncode != 0:
        raise OSError(errno.EPERM, done.stderr.strip() or f"mount ended with exit status {done.returncode}")


def _take_all(filler: int) -> int:
    """In ever smaller pieces: others may take room at the same time, so how much is left is never known."""
    begin = end = os.fstat(filler).st_size
    chunk = LARGEST_CHUNK
    while chunk >= SMALLEST_CHUNK:
        try:
            os.posix_fallocate(filler, end, chunk)
            end += chunk
        except OSError as error:
            if error.errno != errno.ENOSPC:
                raise
            chunk //= 2
    return end - begin
