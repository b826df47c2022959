"""`holdfast jobs artifacts ID` and `holdfast jobs result ID`"""

from __future__ import annotations

import json as json_text
import sys
from datetime import UTC, datetime
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer

from holdfast.cli import output
from holdfast.cli.ages import age
from holdfast.cli.session import Json, begin, opened
from holdfast.domain.artifacts import JSON, TEXT, Artifact
from holdfast.domain.errors import ConfigurationError, NotFound
from holdfast.domain.job import Job
from holdfast.domain.lifecycle import State
from holdfast.settings import artifacts_location

if TYPE_CHECKING:
    from holdfast.stores.sql_store import SqlStore

JobId = Annotated[str, typer.Argument(metavar="ID")]
Where = Annotated[
    str | None, typer.Option(metavar="URL", help="Where the files are: a folder or s3://…; else HOLDFAST_ARTIFACTS.")
]


def artifacts(context: typer.Context, job_id: JobId, json: Json = False) -> None:
    """The files that a job's attempts saved, failed attempts too."""
    session = begin(context, json)
    with opened(session.settings()) as store:
        job = store.job(job_id)  # so that an unknown job is an error and one without files is not
        found = store.artifacts(job.id)
    if session.json:
        output.document({"artifacts": [described(artifact) for artifact in found]})
    elif found:
        print_artifacts(found, datetime.now(UTC))
    else:
        output.remark("It has saved nothing.")


def result(
    context: typer.Context,
    job_id: JobId,
    name: Annotated[str | None, typer.Option(metavar="NAME", help="Another of its files, by name.")] = None,
    write_to: Annotated[
        Path | None, typer.Option("--output", metavar="FILE", help="Write it here and not to the terminal.")
    ] = None,
    artifacts: Where = None,
    json: Json = False,
) -> None:
    """What a job returned, from its row or from the file it was saved to."""
    session = begin(context, json)
    settings = session.settings()
    where = settings.artifacts_url if artifacts is None else artifacts_location(artifacts, "--artifacts", Path.cwd())
    with opened(settings) as store:
        job = store.job(job_id)
        artifact, data = _content(store, job, name, where)
    if write_to is not None:
        _write(write_to, data)
        if session.json:
            output.document({"id": job.id, "output": str(write_to), "bytes": len(data)})
    elif session.json:
        output.document({"id": job.id, "result": _as_json(artifact, data), "media_type": _media_type(artifact)})
    else:
        _print(data)


def described(artifact: Artifact) -> dict[str, Any]:
    """As JSON, with the reference that names it."""
    return {
        "attempt": artifact.attempt,
        "name": artifact.name,
        "media_type": artifact.media_type,
        "bytes": artifact.bytes,
        "sha256": artifact.sha256,
        "saved_at": artifact.saved_at,
        "ref": str(artifact.reference),
    }


def print_artifacts(found: list[Artifact], now: datetime) -> None:
    headers = ("attempt", "name", "bytes", "saved", "type", "sha256")
    rows = [(a.attempt, a.name, f"{a.bytes:,}", age(a.saved_at, now), a.media_type, a.sha256) for a in found]
    output.table(headers, rows)


def _content(store: SqlStore, job: Job, name: str | None, where: str) -> tuple[Artifact | None, bytes]:
    """The file, or None for what is in the row itself."""
    from holdfast.tasks.reading import find_artifact, read_artifact, result_artifact
    from holdfast.wiring.sql import artifacts_root, open_artifacts

    if name is not None:
        artifact = find_artifact(job.id, store.artifacts(job.id), name)
    elif job.state is not State.SUCCEEDED:
        raise NotFound(f"job {job.id} is {job.state} and has no result; `holdfast jobs show` says more")
    elif job.result is not None or job.result_ref is None:
        return None, json_text.dumps(job.result, ensure_ascii=False).encode() + b"\n"
    else:
        artifact = result_artifact(job, store.artifacts(job.id))
    return artifact, read_artifact(open_artifacts(artifacts_root(where, store.store_id())), artifact)


def _media_type(artifact: Artifact | None) -> str:
    return JSON if artifact is None else artifact.media_type


def _as_json(artifact: Artifact | None, data: bytes) -> Any:
    if _media_type(artifact) == JSON:
        return json_text.loads(data)
    if _media_type(artifact) == TEXT:
        return data.decode()
    raise ConfigurationError("The result is bytes, which JSON cannot hold: write it to a file with --output FILE.")


def _write(path: Path, data: bytes) -> None:
    try:
        path.write_bytes(data)
    except OSError as error:
        raise ConfigurationError(f"--output {path}: {error.strerror}") from error


def _print(data: bytes) -> None:
    """As it is, to whatever reads it; a person's terminal is not fed what is not text."""
    if sys.stdout.isatty():
        try:
            output.line(data.decode().removesuffix("\n"))
        except UnicodeDecodeError:
            raise ConfigurationError("The result is bytes: write it to a file with --output FILE.") from None
        return
    sys.stdout.flush()
    sys.stdout.buffer.write(data)
    sys.stdout.flush()
