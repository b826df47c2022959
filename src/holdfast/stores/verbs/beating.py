"""Heartbeat many leases; a row that is locked is busy, never lost."""

from __future__ import annotations

from collections.abc import Sequence

from holdfast.domain import digests
from holdfast.domain.answers import Beat, Beaten, Status, Verb
from holdfast.domain.errors import InvalidInput
from holdfast.domain.names import check_id, check_integer
from holdfast.domain.spec import check_json, encode_json
from holdfast.stores import rows
from holdfast.stores.database import Database, Transaction
from holdfast.stores.statements.heartbeat import HEARTBEAT
from holdfast.stores.verbs import lost

MAX_PROGRESS_BYTES = 4 * 1024


def heartbeat(database: Database, beats: Sequence[Beat]) -> list[Beaten]:
    if not beats:
        return []
    encoded = "[" + ",".join(_encode(beat) for beat in beats) + "]"
    with database.statement() as transaction:
        renewed = {row[0]: row[1:] for row in transaction.rows(HEARTBEAT, {"rows": encoded})}
    missed = [beat for beat in beats if check_id(beat.job_id) not in renewed]
    answers = {job_id: _renewed(job_id, *values) for job_id, values in renewed.items()}
    if missed:
        with database.transaction() as transaction:
            answers |= _look_into(transaction, missed)
    return [answers[check_id(beat.job_id)] for beat in beats]


def _renewed(job_id: str, expires_at: object, lease_seconds: float, cancel: object) -> Beaten:
    return Beaten(job_id, Status.APPLIED, rows.moment(expires_at), float(lease_seconds), cancel is not None)


def _look_into(transaction: Transaction, missed: Sequence[Beat]) -> dict[str, Beaten]:
    known = lost.look_into(transaction, (check_id(beat.job_id) for beat in missed))
    answers: dict[str, Beaten] = {}
    refused: list[lost.Refused] = []
    for beat in missed:
        job_id, digest = check_id(beat.job_id), digests.token_digest(beat.lease_token)
        if known.holds(job_id, beat.attempt, digest):
            answers[job_id] = Beaten(job_id, Status.BUSY)
            continue
        reason = known.lease_reason(job_id, beat.attempt, digest)
        answers[job_id] = Beaten(job_id, Status.REFUSED, reason=reason)
        refused.append(lost.Refused(job_id, beat.attempt, Verb.HEARTBEAT, reason, beat.worker))
    lost.record(transaction, refused)
    return answers


def _encode(beat: Beat) -> str:
    row = {
        "id": check_id(beat.job_id, "job_id"),
        "attempt": check_integer(beat.attempt, "attempt", 0, 2**31 - 1),
        "token": digests.token_digest(beat.lease_token),
        "progress": _checked_progress(beat.progress),
    }
    return encode_json(row)


def _checked_progress(progress: object) -> object:
    if progress is not None:
        check_json(progress, "progress")
        if len(encode_json(progress).encode()) > MAX_PROGRESS_BYTES:
            raise InvalidInput("progress", f"must be at most {MAX_PROGRESS_BYTES:,} bytes of JSON")
    return progress
