"""Where files of jobs are kept: beside the store, and not a part of it."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from typing import BinaryIO, Protocol


@dataclass(frozen=True, slots=True)
class StoredFile:
    """A file as it is found: its path below the root, and when it was last changed by the clock of whoever keeps it."""

    path: str
    modified: float


class ArtifactStore(Protocol):
    """Where the files of one database's jobs are kept. A reference is `<job id>/<attempt>/<name>`."""

    @property
    def place(self) -> str:
        """Where that is, as people may see it."""

    def write(self, reference: str, data: bytes) -> None:
        """Whole or not at all; once it returns, the file is there for every reader."""

    def read(self, reference: str) -> bytes: ...

    def open(self, reference: str) -> BinaryIO: ...

    def delete(self, stored: str) -> None: ...

    def job_folders(self) -> Iterator[str]: ...

    def files(self, job_id: str) -> Iterator[StoredFile]: ...

    def remove_empty(self, job_id: str) -> None: ...

    def now(self) -> float:
        """The time by the clock that `StoredFile.modified` comes from."""

    def check(self) -> None:
        """Write, read and delete a probe; an error says what cannot be done."""
