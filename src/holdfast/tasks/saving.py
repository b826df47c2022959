"""What one attempt saves while it runs.

A file is written first and told about afterwards; it is on record once the attempt's report is applied. What is told of
must stay as it was told: a name that is saved again is taken back before its file changes, and after the attempt's end
nothing is told any more. So at any moment, whoever dies, what may get on record is a file that is there and unchanged.

A signal handler of the task may save too, a last checkpoint say. Where it has interrupted its own thread in here, in
telling, or in saving under the same name, its file is written as soon as that is through, and what goes wrong is raised
there.
"""

from __future__ import annotations

import hashlib
import os
from collections.abc import Callable
from typing import TYPE_CHECKING, Any

from holdfast.domain.artifacts import (
    BYTES,
    JSON,
    MOST_ARTIFACTS,
    TEXT,
    Artifact,
    ArtifactRef,
    check_own_name,
    reference,
    result_name,
)
from holdfast.domain.errors import InvalidInput
from holdfast.domain.spec import encode_json
from holdfast.tasks.results import result_to_json
from holdfast.tasks.turn import Turn

if TYPE_CHECKING:
    from holdfast.ports import ArtifactStore

# Of a name: what is saved under it, or None when that is about to change.
Told = Callable[[str, Artifact | None], None]
# True: this thread cannot tell anything now; the action is done as soon as it can.
Later = Callable[[Callable[[], object]], bool]


def _nobody(name: str, artifact: Artifact | None) -> None:
    """Nobody listens: the one who runs the attempt asks at its end."""


def _at_once(_action: Callable[[], object]) -> bool:
    return False


class Saves:
    """Any thread of the task may save; `open_store` is called when the first one does."""

    def __init__(
        self,
        job_id: str,
        attempt: int,
        open_store: Callable[[], ArtifactStore],
        told: Told = _nobody,
        later: Later = _at_once,
    ) -> None:
        self._job_id = job_id
        self._attempt = attempt
        self._open = open_store
        self._told = told
        self._later = later
        self._turn = Turn()
        self._saved: dict[str, Artifact] = {}
        self._sealed: dict[str, Artifact] = {}
        self._names: dict[str, str] = {}
        self._folders: set[str] = set()
        self._writing: dict[str, Turn] = {}
        self._results = 0
        self._is_used = False
        self._is_closed = False

    @property
    def artifacts(self) -> tuple[Artifact, ...]:
        return tuple(self._saved.values())

    def has(self, saved: ArtifactRef) -> bool:
        return any(artifact.reference == saved for artifact in self.artifacts)

    def is_own(self, saved: ArtifactRef) -> bool:
        return saved.startswith(f"{self._job_id}/{self._attempt}/")

    def save(self, name: str, data: Any) -> ArtifactRef:
        return self._write(check_own_name(name), *_content(data))

    def save_result(self, json: bytes) -> ArtifactRef:
        with self._turn:
            self._results += 1
            name = result_name(self._results)
        return self._write(name, json, JSON, is_result=True)

    def seal(self) -> tuple[Artifact, ...]:
        """The task is about to finish its job in a transaction of its own. What that puts on record may not change any
        more, whatever becomes of it: only the database knows, and a commit may have succeeded without an answer."""
        with self._turn:
            self._sealed |= self._saved
            return tuple(self._saved.values())

    def close(self) -> None:
        """The attempt is over; what a thread that it left behind still saves is nobody's."""
        if not self._is_used:  # most attempts save nothing: no lock for them
            self._is_closed = True
            return
        with self._turn:
            self._is_closed = True

    def _write(self, name: str, data: bytes, media_type: str, *, is_result: bool = False) -> ArtifactRef:
        def again() -> None:
            self._write(name, data, media_type, is_result=is_result)

        self._is_used = True
        if self._interrupted(name, again):
            return reference(self._job_id, self._attempt, name)
        digest = hashlib.sha256(data).hexdigest()
        artifact = Artifact(self._job_id, self._attempt, name, media_type, len(data), digest)
        saved = reference(self._job_id, self._attempt, name)
        with Turn() as writing:
            with self._turn:
                if self._is_sealed_as(artifact):
                    return saved
                self._begin(name, writing, is_result)
            try:
                self._open().write(saved, data)
            except BaseException:
                with self._turn:
                    del self._writing[name]
                raise
            with self._turn:
                del self._writing[name]
                if not self._is_closed:
                    self._saved[name] = artifact
                    self._told(name, artifact)
        return saved

    def _interrupted(self, name: str, again: Callable[[], None]) -> bool:
        same = self._writing.get(name)
        return self._turn.later(again) or self._later(again) or (same is not None and same.later(again))

    # with the turn held

    def _is_sealed_as(self, artifact: Artifact) -> bool:
        sealed = self._sealed.get(artifact.name)
        if sealed is not None and sealed != artifact:
            raise InvalidInput("name", f"{artifact.name} may be on record by ctx.complete_in; choose another name")
        return sealed is not None

    def _begin(self, name: str, writing: Turn, is_result: bool) -> None:
        if self._is_closed:
            raise InvalidInput("name", f"{name} cannot be saved: the attempt is over")
        if name in self._writing:
            raise InvalidInput("name", f"{name} is being saved by another thread right now")
        self._reserve(name, is_result)
        self._writing[name] = writing
        if self._saved.pop(name, None) is not None:
            self._told(name, None)

    def _reserve(self, name: str, is_result: bool) -> None:
        """Two names that are one file on some file system, or a file and a folder, are found wherever the job runs."""
        folded = name.casefold()
        other = self._names.get(folded)
        if other == name:
            return
        if other is not None:
            raise InvalidInput("name", f"{name} differs from {other}, which is saved, only in upper and lower case")
        # Not for want of a name for its result should an attempt have worked in vain.
        if len(self._names) >= MOST_ARTIFACTS and not is_result:
            raise InvalidInput("name", f"an attempt may save {MOST_ARTIFACTS:,} artifacts; pack several into one")
        parts = folded.split("/")
        above = ["/".join(parts[:end]) for end in range(1, len(parts))]
        if folded in self._folders or any(folder in self._names for folder in above):
            raise InvalidInput("name", f"{name} clashes with a name that is saved: one would be the other's folder")
        self._names[folded] = name
        self._folders.update(above)


def _content(data: Any) -> tuple[bytes, str]:
    match data:
        case bytes():
            return data, BYTES
        case bytearray() | memoryview():
            return bytes(data), BYTES
        case str():
            try:
                return data.encode(), TEXT
            except UnicodeEncodeError:
                raise InvalidInput("data", "contains a lone surrogate, which is not valid Unicode") from None
        case os.PathLike():
            raise InvalidInput("data", "is a path; give what is to be saved, say path.read_bytes()")
    try:
        return encode_json(result_to_json(data)).encode(), JSON
    except InvalidInput as error:
        raise InvalidInput(f"data{error.field.removeprefix('result')}", error.rule) from error
