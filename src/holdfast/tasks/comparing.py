"""Did two jobs come to the same: their outcomes, and the results of those that succeeded, wherever these are kept.

Of a result that is a file, media type and SHA-256 are on record: equal digests need no reading. Where they differ, JSON
and text are read if the files can be; bytes have nothing to say but their sizes and digests.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, Protocol

from holdfast.domain.artifacts import JSON, TEXT, Artifact
from holdfast.domain.comparison import MOST_LINES, Comparison, check_tolerance, compare
from holdfast.domain.errors import HoldfastError, NotFound
from holdfast.domain.lifecycle import TERMINAL, State
from holdfast.tasks.reading import decoded, read_artifact, result_artifact

if TYPE_CHECKING:
    from collections.abc import Callable

    from holdfast.domain.job import Job
    from holdfast.ports import ArtifactStore

    Files = Callable[[], ArtifactStore]

MOST_READ_BYTES = 64 * 1024 * 1024  # of each; both are in memory at once
LONGEST_CHAIN = 100


class RunStore(Protocol):
    def job(self, job_id: str) -> Job: ...

    def artifacts(self, job_id: str) -> list[Artifact]: ...


def compare_jobs(
    store: RunStore,
    first: Job,
    second: Job,
    *,
    files: Files | None = None,
    tolerance: float = 0.0,
    most: int = MOST_LINES,
) -> Comparison:
    """`files` opens the place where artifacts are kept; without it what is in files is known by its digest alone."""
    check_tolerance(tolerance)
    unfinished = [job for job in (first, second) if job.state not in TERMINAL]
    if unfinished:
        return Comparison(None, tuple(f"job {job.id} is {job.state} and has no outcome yet" for job in unfinished))
    if first.state is not second.state:
        return Comparison(False, (f"state: {_outcome(first)} -> {_outcome(second)}",))
    match first.state:
        case State.SUCCEEDED:
            return _compare_results(store, first, second, files, tolerance, most)
        case State.FAILED:
            codes = (_code(first), _code(second))
            differences = () if codes[0] == codes[1] else (f"error code: {codes[0]} -> {codes[1]}",)
            return Comparison(not differences, differences)
        case _:
            return Comparison(None, ("both were cancelled; neither has a result",))


def original_of(store: RunStore, job: Job) -> Job:
    """The job that this one is a replay of."""
    if job.replay_of is None:
        raise NotFound(f"job {job.id} is not a replay: name the job to compare it with")
    try:
        return store.job(job.replay_of)
    except NotFound:
        raise NotFound(
            f"job {job.id} is a replay of {job.replay_of}, which is no longer there (retention); nothing to compare"
        ) from None


def root_of(store: RunStore, job: Job, may_see: Callable[[Job | None], bool] = lambda _job: True) -> str | None:
    """The first of a chain of replays, as far as its jobs are still there (the last that is named may be gone: None is
    what `may_see` is asked then) and may be seen; None for a job that is no replay."""
    root, named = None, job.replay_of
    for _ in range(LONGEST_CHAIN):
        if named is None:
            break
        original = _still_there(store, named)
        if not may_see(original):
            break
        root, named = named, None if original is None else original.replay_of
    return root


def _still_there(store: RunStore, job_id: str) -> Job | None:
    try:
        return store.job(job_id)
    except NotFound:
        return None


def _compare_results(
    store: RunStore, first: Job, second: Job, files: Files | None, tolerance: float, most: int
) -> Comparison:
    if first.result_ref is None and second.result_ref is None:
        return compare(first.result, second.result, tolerance=tolerance, most=most)
    try:
        saved = [_artifact(store, job) for job in (first, second)]
    except NotFound as error:  # the reference names nothing that is on record
        return Comparison(None, (str(error),))
    kinds = [JSON if artifact is None else artifact.media_type for artifact in saved]
    if kinds[0] != kinds[1]:
        return Comparison(False, (f"media type: {kinds[0]} -> {kinds[1]}",))
    if saved[0] is not None and saved[1] is not None and saved[0].sha256 == saved[1].sha256:
        return Comparison(True)
    by_record = f"{_on_record(saved[0])} -> {_on_record(saved[1])}"
    if kinds[0] not in (JSON, TEXT):
        return Comparison(False, (by_record,))
    if files is None:
        # One value has many texts: that the files differ says nothing of the values in them.
        return Comparison(None if kinds[0] == JSON else False, (by_record,))
    try:
        values = [_value(job, artifact, files) for job, artifact in zip((first, second), saved, strict=True)]
    except (HoldfastError, ValueError) as error:
        return Comparison(None if kinds[0] == JSON else False, (by_record, f"not read: {error}"))
    return compare(*values, tolerance=tolerance, most=most)


def _artifact(store: RunStore, job: Job) -> Artifact | None:
    """None for what is in the row."""
    if job.result_ref is None or job.result is not None:
        return None
    return result_artifact(job, store.artifacts(job.id))


def _value(job: Job, artifact: Artifact | None, files: Files) -> Any:
    if artifact is None:
        return job.result
    if artifact.bytes > MOST_READ_BYTES:
        raise ValueError(f"{artifact.reference} has more than {MOST_READ_BYTES:,} bytes")
    return decoded(artifact, read_artifact(files(), artifact))


def _on_record(artifact: Artifact | None) -> str:
    if artifact is None:
        return "in the row"
    return f"{artifact.bytes:,} bytes, SHA-256 {artifact.sha256[:16]}…"


def _outcome(job: Job) -> str:
    return f"failed ({_code(job)})" if job.state is State.FAILED else str(job.state)


def _code(job: Job) -> str:
    return str((job.last_error or {}).get("code") or "no code")
