"""Artifacts: what an attempt saves as a file of its own. Their names, their references, and what is recorded of them.

A reference is `<job id>/<attempt>/<name>`, relative to wherever the reader keeps its artifacts: it can name no place
outside. The attempt in it is the fence: an attempt that has lost its lease writes beside its successor, never over it.

A name must mean the same file in a folder of any file system and in any bucket, so it is held to the rules that all of
them share.
"""

from __future__ import annotations

import re
import unicodedata
from collections.abc import Mapping
from dataclasses import dataclass
from datetime import datetime
from typing import Any

from holdfast.domain.errors import InvalidInput
from holdfast.domain.names import check_id, check_integer

# A result whose JSON takes more than this is saved as an artifact; the row then holds only its reference. As much as a
# row has always taken: where machines share no place for files, only what never fitted is found on one of them.
INLINE_RESULT_BYTES = 256 * 1024
# A returned value is in memory as an object, as JSON and as bytes, all at once.
MAX_SAVED_RESULT_BYTES = 256 * 1024 * 1024
MAX_ARTIFACT_NAME = 500  # bytes; with store and job id in front a key stays below 1,024
MAX_SEGMENT = 200  # bytes
MOST_ARTIFACTS = 10_000  # of one attempt: they are recorded in one transaction

BYTES = "application/octet-stream"
TEXT = "text/plain; charset=utf-8"
JSON = "application/json"

TEMPORARY = ".saving-"  # how a file begins that is being written; no artifact's name begins so

_RESULT = re.compile(r"result(-\d+)?\.json", re.IGNORECASE)
_FORBIDDEN = (
    {"\\": "a backslash", ":": "a colon", '"': "a quotation mark"}
    | {character: f"a glob character ({character})" for character in "*?[]"}
    | {character: f"{character}, which some file systems do not allow" for character in "<>|"}
)
_ATTEMPT = re.compile(r"[1-9][0-9]{0,9}|0")
_LARGEST = 2**31 - 1


class ArtifactRef(str):
    """The reference of an artifact, as `ctx.save` returns it. A task that returns its own has it as its result."""

    __slots__ = ()


@dataclass(frozen=True, slots=True)
class Artifact:
    """What is recorded of one saved file."""

    job_id: str
    attempt: int
    name: str
    media_type: str
    bytes: int
    sha256: str
    saved_at: datetime | None = None  # when it was recorded, by the store's clock

    @property
    def reference(self) -> ArtifactRef:
        return reference(self.job_id, self.attempt, self.name)

    def to_json(self) -> dict[str, Any]:
        """For the pipe between a runner and its supervisor; job and attempt are known there."""
        return {"name": self.name, "media_type": self.media_type, "bytes": self.bytes, "sha256": self.sha256}

    @classmethod
    def from_json(cls, job_id: str, attempt: int, value: Mapping[str, Any]) -> Artifact:
        return cls(job_id, attempt, value["name"], value["media_type"], value["bytes"], value["sha256"])


@dataclass(frozen=True, slots=True)
class LiveArtifacts:
    """What may not be collected: references that rows hold, and attempts that are running now."""

    references: frozenset[str]
    running: frozenset[tuple[str, int]]

    def needs(self, job_id: str, attempt: int, stored: str) -> bool:
        return stored in self.references or (job_id, attempt) in self.running


def reference(job_id: str, attempt: int, name: str) -> ArtifactRef:
    return ArtifactRef(f"{job_id}/{attempt}/{name}")


def parse_reference(value: Any, field: str = "reference") -> tuple[str, int, str]:
    """Job id, attempt and name; only the one canonical spelling of a reference is one."""
    if not isinstance(value, str):
        raise InvalidInput(field, f"must be a string, got {type(value).__name__}")
    job_id, _, rest = value.partition("/")
    number, _, name = rest.partition("/")
    try:
        canonical = check_id(job_id, field)
    except InvalidInput:
        canonical = ""
    if canonical != job_id or not job_id or not _ATTEMPT.fullmatch(number) or int(number) > _LARGEST:
        raise InvalidInput(field, f"must be <job id>/<attempt>/<name>, got {value[:120]!r}")
    return job_id, int(number), check_artifact_name(name, field)


def check_artifact_name(value: Any, field: str = "name") -> str:
    """`page.html` or `pages/1.html`: plain segments between slashes."""
    if not isinstance(value, str):
        raise InvalidInput(field, f"must be a string, got {type(value).__name__}")
    if not value:
        raise InvalidInput(field, "must not be empty")
    if not value.isprintable():
        raise InvalidInput(field, "must not contain control characters or lone surrogates (NUL and newline included)")
    if len(value.encode()) > MAX_ARTIFACT_NAME:
        raise InvalidInput(field, f"must be at most {MAX_ARTIFACT_NAME} bytes, got {len(value.encode())}")
    if value != unicodedata.normalize("NFC", value):
        raise InvalidInput(field, "must be in Unicode's composed form (unicodedata.normalize('NFC', name))")
    for character, what in _FORBIDDEN.items():
        if character in value:
            raise InvalidInput(field, f"must not contain {what}, got {value!r}")
    for segment in value.split("/"):
        _check_segment(segment, value, field)
    return value


def _check_segment(segment: str, name: str, field: str) -> None:
    if not segment:
        raise InvalidInput(field, f"must be relative, with exactly one slash between its parts, got {name!r}")
    if segment.startswith("."):
        raise InvalidInput(field, f"no part of it may begin with a dot (. and .. included), got {name!r}")
    if segment.endswith((".", " ")) or segment.startswith(" "):
        raise InvalidInput(field, f"no part of it may end with a dot, or begin or end with a space, got {name!r}")
    if len(segment.encode()) > MAX_SEGMENT:
        raise InvalidInput(field, f"no part of it may be longer than {MAX_SEGMENT} bytes, got {len(segment.encode())}")


def check_own_name(value: Any) -> str:
    """A name that a task chooses: results that are too large for a row have names of their own."""
    name = check_artifact_name(value)
    if _RESULT.fullmatch(name):
        raise InvalidInput("name", f"{name} is where a large result goes; choose another name")
    return name


def result_name(number: int) -> str:
    """Of the first, second … result that one attempt saves: one that may be recorded is never written over."""
    return "result.json" if number == 1 else f"result-{number}.json"


def check_artifact(artifact: Artifact, job_id: str, attempt: int) -> Artifact:
    """What a report may say of a file: it is that very attempt's."""
    if (artifact.job_id, artifact.attempt) != (job_id, attempt):
        raise InvalidInput("artifacts", f"{artifact.reference} is not of attempt {attempt} of job {job_id}")
    check_artifact_name(artifact.name, "artifacts")
    check_integer(artifact.bytes, "artifacts", 0, 2**63 - 1)
    if not re.fullmatch(r"[0-9a-f]{64}", artifact.sha256):
        raise InvalidInput("artifacts", f"{artifact.name}: sha256 must be 64 hexadecimal digits")
    if not artifact.media_type.isprintable() or not 0 < len(artifact.media_type) <= 200:
        raise InvalidInput("artifacts", f"{artifact.name}: media_type must be 1 to 200 printable characters")
    return artifact
