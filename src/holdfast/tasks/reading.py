"""From what is on record of a saved file back to what was saved."""

from __future__ import annotations

import hashlib
import json
from collections.abc import Sequence
from typing import TYPE_CHECKING, Any

from holdfast.domain.artifacts import JSON, TEXT, Artifact, parse_reference
from holdfast.domain.errors import ArtifactMissing, ArtifactUnavailable, InvalidInput

if TYPE_CHECKING:
    from holdfast.domain.job import Job
    from holdfast.ports import ArtifactStore


def result_artifact(job: Job, records: Sequence[Artifact]) -> Artifact:
    """What `result_ref` names. Only a file that this very job has on record will do, whatever the column says."""
    try:
        job_id, attempt, name = parse_reference(job.result_ref, "result_ref")
    except InvalidInput as error:
        raise ArtifactMissing(f"job {job.id}: its result cannot be read: {error}") from error
    known = [record for record in records if (record.job_id, record.attempt, record.name) == (job_id, attempt, name)]
    if job_id != job.id or not known:
        raise ArtifactMissing(f"job {job.id}: its result_ref {job.result_ref!r} names no artifact of this job")
    return known[0]


def find_artifact(job_id: str, records: Sequence[Artifact], name: str, attempt: int | None = None) -> Artifact:
    """The one of that name; of several attempts' the last one's, unless the attempt is named."""
    known = [record for record in records if record.name == name and attempt in (None, record.attempt)]
    if not known:
        where = "" if attempt is None else f" of attempt {attempt}"
        names = ", ".join(sorted({record.name for record in records})) or "none"
        raise ArtifactMissing(f"job {job_id} has no artifact {name!r}{where} on record; there are: {names}")
    return max(known, key=lambda record: record.attempt)


def read_artifact(files: ArtifactStore, artifact: Artifact) -> bytes:
    try:
        data = files.read(artifact.reference)
    except ArtifactMissing as error:
        raise ArtifactMissing(
            f"{error}; it is on record, so it was saved: where workers run on other machines, name a place that all"
            " of them share, and here the same one (HOLDFAST_ARTIFACTS, or App(artifacts=…))"
        ) from error
    if hashlib.sha256(data).hexdigest() != artifact.sha256:
        raise ArtifactUnavailable(f"{artifact.reference} in {files.place} is not what was saved: its SHA-256 differs")
    return data


def decoded(artifact: Artifact, data: bytes) -> Any:
    if artifact.media_type == JSON:
        return json.loads(data)
    return data.decode() if artifact.media_type == TEXT else data
