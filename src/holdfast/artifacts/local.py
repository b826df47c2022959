"""Artifacts in a folder of this machine, or of one that is mounted here.

A file is written beside its place under a name that no artifact can have, flushed to the disk, renamed, and the folder
flushed too: under its own name it is whole or not there, also after a power cut. Folders are made when the first file
comes; reading makes none.

A symbolic link below the root is never followed, whoever put it there; the root itself may be one.
"""

from __future__ import annotations

import contextlib
import os
import random
import secrets
import sys
import time
from collections.abc import Iterator
from pathlib import Path
from typing import BinaryIO

from holdfast.domain.artifacts import TEMPORARY, parse_reference
from holdfast.domain.errors import ArtifactMissing, ArtifactUnavailable
from holdfast.ports import StoredFile

_PATIENCE = 10.0  # seconds for which a folder may disappear between its making and the first file in it
_PAUSE = 0.01


class LocalArtifacts:
    def __init__(self, root: Path) -> None:
        self._root = root

    @property
    def place(self) -> str:
        return str(self._root)

    def write(self, reference: str, data: bytes) -> None:
        path = self._path(reference)
        with self._explained(f"{reference} cannot be saved"):
            given_up = time.monotonic() + _PATIENCE
            while time.monotonic() < given_up:
                try:
                    return _write_whole(path, data)
                except (FileNotFoundError, FileExistsError) as error:
                    if _in_the_way(error):
                        raise
                time.sleep(random.uniform(0, _PAUSE))  # out of step with whoever collects
        raise ArtifactUnavailable(f"{reference} cannot be saved in {self.place}: its folder disappears all the time")

    def read(self, reference: str) -> bytes:
        with self.open(reference) as file, self._explained(f"{reference} cannot be read"):
            return file.read()

    def open(self, reference: str) -> BinaryIO:
        path = self._path(reference)
        with self._explained(f"{reference} cannot be read"):
            return path.open("rb")

    def delete(self, stored: str) -> None:
        path = self._below(stored)
        with self._explained(f"{stored} cannot be deleted"), contextlib.suppress(FileNotFoundError):
            path.unlink()

    def job_folders(self) -> Iterator[str]:
        """One after the other: a folder may hold millions."""
        with self._explained("the folder cannot be read"):
            try:
                entries = os.scandir(self._root)
            except FileNotFoundError:
                return
            with entries:
                for entry in entries:
                    if entry.is_dir(follow_symlinks=False):
                        yield entry.name

    def files(self, job_id: str) -> Iterator[StoredFile]:
        with self._explained(f"the folder of job {job_id} cannot be read"):
            yield from _files(self._root / job_id, job_id)

    def remove_empty(self, job_id: str) -> None:
        """Folders only; whoever is just making a file in one of them makes it again."""
        _remove_empty(self._root / job_id)

    def now(self) -> float:
        """By the clock that the files' own times come from, which need not be this machine's."""
        probe = self._root / f"{TEMPORARY}{secrets.token_hex(8)}"
        with self._explained("the folder cannot be written to"):
            try:
                probe.touch()
                return probe.stat().st_mtime
            finally:
                probe.unlink(missing_ok=True)

    def check(self) -> None:
        """Write, read and delete a file; ArtifactUnavailable says what cannot be done."""
        probe = self._root / f"{TEMPORARY}{secrets.token_hex(8)}"
        with self._explained("a file cannot be written, read and deleted"):
            made = _missing(self._root)
            try:
                _write_whole(probe, b"holdfast")
                content = probe.read_bytes()
            finally:
                probe.unlink(missing_ok=True)
                with contextlib.suppress(OSError):  # somebody has begun to use it
                    for folder in made:
                        folder.rmdir()
        if content != b"holdfast":
            raise ArtifactUnavailable(f"{self.place}: what was written did not come back")

    def _path(self, reference: str) -> Path:
        parse_reference(reference)
        return self._below(reference)

    def _below(self, stored: str) -> Path:
        path = self._root
        for part in stored.split("/"):
            path = path / part
            if path.is_symlink():
                raise ArtifactUnavailable(f"{path} is a symbolic link, which is not followed; remove it")
        return path

    @contextlib.contextmanager
    def _explained(self, problem: str) -> Iterator[None]:
        try:
            yield
        except FileNotFoundError as error:
            raise ArtifactMissing(f"{problem}: there is no such file in {self.place}") from error
        except OSError as error:
            raise ArtifactUnavailable(f"{problem} in {self.place}: {error.strerror or error}") from error


def _write_whole(path: Path, data: bytes) -> None:
    temporary = path.parent / f"{TEMPORARY}{secrets.token_hex(8)}"
    made = _missing(path.parent)
    path.parent.mkdir(parents=True, exist_ok=True)
    try:
        with temporary.open("xb") as file:
            file.write(data)
            file.flush()
            os.fsync(file.fileno())
        for folder in made:  # a file in a folder that a power cut undoes is undone too
            _flush_folder(folder.parent)
        os.replace(temporary, path)  # noqa: PTH105 - the name that says what it does on every system
    except BaseException:
        with contextlib.suppress(OSError):
            temporary.unlink(missing_ok=True)
        raise
    _flush_folder(path.parent)


def _in_the_way(error: OSError) -> bool:
    """Whether something that is no folder has the name of one: a file, or a link to nowhere. All else that is missing,
    or was there and is not any more, are folders that whoever collects removes while they are empty."""
    name = Path(error.filename)
    return isinstance(error, FileExistsError) and (name.exists() or name.is_symlink()) and not name.is_dir()


def _missing(folder: Path) -> list[Path]:
    """The folders that are not there yet, the innermost first."""
    return [] if folder.is_dir() else [folder, *_missing(folder.parent)]


def _flush_folder(folder: Path) -> None:
    if sys.platform == "win32":
        return
    descriptor = os.open(folder, os.O_RDONLY)
    try:
        os.fsync(descriptor)
    finally:
        os.close(descriptor)


def _files(folder: Path, stored: str) -> Iterator[StoredFile]:
    try:
        if folder.is_symlink():
            return
        entries = os.scandir(folder)
    except (FileNotFoundError, NotADirectoryError):
        return
    with entries:
        for entry in entries:
            inside = f"{stored}/{entry.name}"
            if entry.is_dir(follow_symlinks=False):
                yield from _files(Path(entry.path), inside)
            elif entry.is_file(follow_symlinks=False):
                with contextlib.suppress(FileNotFoundError):  # renamed or deleted meanwhile
                    yield StoredFile(inside, entry.stat(follow_symlinks=False).st_mtime)


def _remove_empty(folder: Path) -> None:
    with contextlib.suppress(OSError):
        if folder.is_symlink():
            return
        for inside in [Path(entry.path) for entry in os.scandir(folder) if entry.is_dir(follow_symlinks=False)]:
            _remove_empty(inside)
    with contextlib.suppress(OSError):  # it is not empty
        folder.rmdir()
