"""Record, list and judge the files that attempts saved."""

from __future__ import annotations

import json
import secrets
from collections.abc import Sequence

from holdfast.domain.artifacts import Artifact, LiveArtifacts, reference
from holdfast.domain.names import check_id
from holdfast.domain.spec import encode_json
from holdfast.stores import rows
from holdfast.stores.database import Database, Transaction
from holdfast.stores.statements import artifacts as sql


def record(transaction: Transaction, artifacts: Sequence[Artifact]) -> None:
    """In the transaction that settles their attempts, and only when it does."""
    if artifacts:
        encoded = [{name: getattr(artifact, name) for name in sql.ROW} for artifact in artifacts]
        transaction.run(sql.RECORD, {"rows": encode_json(encoded)})


def of_job(database: Database, job_id: str) -> list[Artifact]:
    with database.reading() as transaction:
        found = transaction.rows(sql.OF_JOB, {"id": check_id(job_id, "job_id")})
    return [Artifact(**rows.decoded(sql.COLUMNS, row, database.dialect)) for row in found]


def live(database: Database, job_ids: Sequence[str]) -> LiveArtifacts:
    with database.reading() as transaction:
        found = transaction.rows(sql.LIVE, {"ids": json.dumps([check_id(job_id) for job_id in job_ids])})
    saved = {reference(job_id, attempt, name) for kind, job_id, attempt, name in found if kind == "saved"}
    results = {name for kind, _job_id, _attempt, name in found if kind == "result"}
    running = {(job_id, attempt) for kind, job_id, attempt, _name in found if kind == "running"}
    return LiveArtifacts(frozenset(saved | results), frozenset(running))


def store_id(database: Database) -> str:
    """Random, made when it is first asked for, and the same ever after."""
    with database.reading() as transaction:
        found = transaction.rows(sql.STORE_ID)
    if not found:
        with database.statement() as transaction:
            transaction.run(sql.NAME_STORE, {"id": secrets.token_hex(8)})
        with database.reading() as transaction:
            found = transaction.rows(sql.STORE_ID)
    return str(found[0][0])
