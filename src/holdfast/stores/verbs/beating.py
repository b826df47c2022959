"""Heartbeat many leases; a row that is locked is busy, never lost."""

from __future__ import annotations

from collections.abc import Mapping, Sequence

from holdfast.domain import digests
from holdfast.domain.answers import Beat, Beaten, Status, Verb
from holdfast.domain.errors import InvalidInput, TooLarge
from holdfast.domain.names import MAX_NAME, check_id, check_integer, storable_text
from holdfast.domain.spec import check_json, encode_json
from holdfast.stores import rows
from holdfast.stores.database import Database, Transaction
from holdfast.stores.statements.heartbeat import HEARTBEAT
from holdfast.stores.verbs import lost

MAX_PROGRESS_BYTES = 4 * 1024

Lease = tuple[str, int | None, str]  # job, attempt, digest of the token


def heartbeat(database: Database, beats: Sequence[Beat]) -> list[Beaten]:
    if not beats:
        return []
    leases = [_lease(beat) for beat in beats]
    encoded = "[" + ",".join(_encode(lease, beat) for lease, beat in zip(leases, beats, strict=True)) + "]"
    with database.statement() as transaction:
        renewed = transaction.rows(HEARTBEAT, {"rows": encoded})
    # By the lease, not by the job: a batch may hold the beats of a job's holder and of its zombie.
    current = {(row[0], row[1]): _renewed(row[0], *row[2:]) for row in renewed}
    answers = {lease: current[lease[0], lease[2]] for lease in leases if (lease[0], lease[2]) in current}
    missed = {lease: beat for lease, beat in zip(leases, beats, strict=True) if lease not in answers}
    if missed:
        with database.transaction() as transaction:
            answers |= _look_into(transaction, missed)
    return [answers[lease] for lease in leases]


def _lease(beat: Beat) -> Lease:
    attempt = None if beat.by_token else check_integer(beat.attempt, "attempt", 0, 2**31 - 1)
    return check_id(beat.job_id, "job_id"), attempt, digests.token_digest(beat.lease_token, beat.credential)


def _renewed(job_id: str, expires_at: object, lease_seconds: float, cancel: object) -> Beaten:
    return Beaten(job_id, Status.APPLIED, rows.moment(expires_at), float(lease_seconds), cancel is not None)


def _look_into(transaction: Transaction, missed: Mapping[Lease, Beat]) -> dict[Lease, Beaten]:
    known = lost.look_into(transaction, (job_id for job_id, _, _ in missed))
    answers: dict[Lease, Beaten] = {}
    refused: list[lost.Refused] = []
    for lease, beat in missed.items():
        job_id, attempt, digest = lease
        attempt = known.attempt_of(job_id, digest) if attempt is None else attempt
        if known.holds(job_id, attempt, digest):
            answers[lease] = Beaten(job_id, Status.BUSY)
            continue
        reason = known.lease_reason(job_id, attempt, digest)
        answers[lease] = Beaten(job_id, Status.REFUSED, reason=reason)
        worker = None if beat.worker is None else storable_text(beat.worker, MAX_NAME)
        refused.append(lost.Refused(job_id, attempt, Verb.HEARTBEAT, reason, worker))
    lost.record(transaction, refused)
    return answers


def _encode(lease: Lease, beat: Beat) -> str:
    job_id, attempt, digest = lease
    progress = _checked_progress(beat.progress)
    return encode_json({"id": job_id, "attempt": attempt, "token": digest, "progress": progress})


def storable_progress(progress: object) -> object:
    """For a report, which must not fail because of what is only for people to look at."""
    try:
        return _checked_progress(progress)
    except InvalidInput:
        return None


def _checked_progress(progress: object) -> object:
    if progress is not None:
        check_json(progress, "progress")
        if len(encode_json(progress).encode()) > MAX_PROGRESS_BYTES:
            raise TooLarge("progress", f"must be at most {MAX_PROGRESS_BYTES:,} bytes of JSON", MAX_PROGRESS_BYTES)
    return progress
