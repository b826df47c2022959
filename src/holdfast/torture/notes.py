"""What every process of a torture run was told, as it was told: the clients' side of the story.

One JSON line a note, one file a process, each line written with one `write` to a file opened for appending: whoever is
killed leaves whole lines, but for the last one, which is passed over when it was cut. Times are the machine's clock
(seconds since 1970), which is the store's too, or near enough: nothing here is judged by less than a second.

An intention is written before the call and the answer after it. An intention without an answer may or may not have
taken effect; an answer must be true.
"""

from __future__ import annotations

import json
import os
import time
from collections.abc import Iterator, Sequence
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any

SUFFIX = ".notes.jsonl"
# Where the machine's clock stands when the one that nobody can set is at zero. Some processes have another time.
ANCHOR = "HOLDFAST_TORTURE_ANCHOR"


@dataclass(frozen=True, slots=True)
class Intended:
    """About to enqueue these ids. Any of them may exist from here on."""

    job_ids: Sequence[str]
    task: str


@dataclass(frozen=True, slots=True)
class Acknowledged:
    """The store, or a control plane, said that these jobs are accepted."""

    job_ids: Sequence[str]
    task: str
    door: str  # "database", "http" or "remote"


@dataclass(frozen=True, slots=True)
class Unavailable:
    """An enqueue raised StoreUnavailable to its caller, after so many seconds."""

    job_ids: Sequence[str]
    task: str
    door: str
    seconds: float
    error: str


@dataclass(frozen=True, slots=True)
class Claimed:
    """A program that speaks the worker contract got a job."""

    job_id: str
    attempt: int
    lease: str  # the digest of the token, as in the audit log
    worker: str


@dataclass(frozen=True, slots=True)
class Reported:
    """It reported an outcome, and was answered. `ok` is what the answer said."""

    job_id: str
    attempt: int
    lease: str
    verb: str  # "complete", "fail", "release"
    ok: bool
    reason: str | None = None


@dataclass(frozen=True, slots=True)
class Operated:
    """An operator's cancel or requeue, with the state that the answer named."""

    job_id: str
    verb: str  # "cancel" or "requeue"
    done: bool
    state: str | None = None


@dataclass(frozen=True, slots=True)
class Began:
    """User code began to run, in whatever process."""

    job_id: str
    attempt: int
    pid: int


@dataclass(frozen=True, slots=True)
class Ended:
    """And came to its last line."""

    job_id: str
    attempt: int
    pid: int


Note = Intended | Acknowledged | Unavailable | Claimed | Reported | Operated | Began | Ended
KINDS: dict[str, type[Any]] = {
    kind.__name__: kind for kind in (Intended, Acknowledged, Unavailable, Claimed, Reported, Operated, Began, Ended)
}


@dataclass(frozen=True, slots=True)
class Noted:
    """A note, when and by whom it was written."""

    at: float
    by: str
    note: Note


class Notebook:
    """The notes of this process. A process that forks or is restarted opens one of its own."""

    def __init__(self, folder: Path, by: str) -> None:
        self._by = by
        self._anchor = float(os.environ.get(ANCHOR) or anchor())
        path = folder / f"{by}.{os.getpid()}{SUFFIX}"
        self._file = os.open(path, os.O_WRONLY | os.O_CREAT | os.O_APPEND, 0o600)

    def write(self, *notes: Note) -> None:
        now = self._anchor + time.monotonic()
        lines = [
            json.dumps({"at": now, "by": self._by, "kind": type(note).__name__, **asdict(note)}, separators=(",", ":"))
            for note in notes
        ]
        os.write(self._file, ("\n".join(lines) + "\n").encode())

    def close(self) -> None:
        os.close(self._file)


def anchor() -> float:
    return time.time() - time.monotonic()


def read_notes(folder: Path) -> Iterator[Noted]:
    """Of all processes, file by file, each in its own order."""
    for path in sorted(folder.glob(f"*{SUFFIX}")):
        with path.open(encoding="utf-8") as file:
            for line in file:
                if line.endswith("\n"):
                    yield _read(line)


def _read(line: str) -> Noted:
    fields = json.loads(line)
    at, by, kind = fields.pop("at"), fields.pop("by"), fields.pop("kind")
    return Noted(at, by, KINDS[kind](**fields))
