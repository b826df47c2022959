"""Claims that can be asked for again: the same credential and request id get the same leases, never others.

What was granted is written in the claiming transaction, under a unique key; so of two askers at once, on any control
planes, one claims and the other is given the same. If the one takes long, the other is told to ask again: it would wait
with jobs in its hands, for a transaction whose process may hang. The tokens are not kept: they are derived from the
request id, which only the asker has, and a random part, which only the store has. Empty answers are not remembered.
"""

from __future__ import annotations

import json
import os
import time
from collections.abc import Callable, Iterable
from dataclasses import dataclass, field, replace

from holdfast.domain import digests
from holdfast.domain.answers import Beat, Status
from holdfast.domain.errors import RequestBusy
from holdfast.domain.job import Claimed
from holdfast.domain.names import check_integer, check_name
from holdfast.stores import rows
from holdfast.stores.database import CursorTransaction, Database
from holdfast.stores.statements import claim_requests as sql
from holdfast.stores.statements.claim import HELD_JOBS
from holdfast.stores.statements.words import POSTGRES, Statement
from holdfast.stores.verbs.beating import heartbeat

# As for rows that are locked: asked for again after 2, 4, 8 … ms, a quarter of a second in all.
BUSY_TRIES = 7
BUSY = "this request_id is being answered elsewhere at this moment; ask again"


class _Taken(Exception):
    """Somebody else answers this request, or has just done so."""


@dataclass(frozen=True, slots=True)
class Request:
    credential: str
    id: str = field(repr=False)
    nonce: str = field(repr=False)

    @property
    def key(self) -> dict[str, str]:
        return {"credential": self.credential, "request": digests.request_digest(self.id)}

    @property
    def lock(self) -> int:
        """What stands for it among the advisory locks of Postgres."""
        return digests.lock_key("holdfast.claim", *self.key.values())

    @property
    def secret(self) -> bytes:
        return digests.request_secret(self.id, self.credential, self.nonce)


def once(
    database: Database,
    credential: str,
    request_id: str,
    claim: Callable[[CursorTransaction, bytes], list[Claimed]],
    settings: Statement | None = None,
) -> list[Claimed]:
    """What this request was granted before; else what `claim` finds, remembered with it, in a transaction with these
    settings."""
    for number in range(BUSY_TRIES):
        before = granted(database, credential, request_id)
        if before is not None:
            return before
        request = Request(credential, request_id, os.urandom(16).hex())
        try:
            with database.transaction(settings) as transaction:
                return _alone(database, transaction, request, claim)
        except _Taken:
            time.sleep(0.002 * 2**number)
    raise RequestBusy(BUSY)


def _alone(
    database: Database,
    transaction: CursorTransaction,
    request: Request,
    claim: Callable[[CursorTransaction, bytes], list[Claimed]],
) -> list[Claimed]:
    """On SQLite nobody else writes meanwhile anyway."""
    if transaction.dialect == POSTGRES and not transaction.rows(sql.BEGIN, {"key": request.lock})[0][0]:
        raise _Taken
    try:
        found = claim(transaction, request.secret)
        if found:
            _remember(transaction, request, found)
    except database.lock_errors as error:
        raise RequestBusy(BUSY) from error
    return found


def granted(database: Database, credential: str, request_id: str) -> list[Claimed] | None:
    """The jobs of an earlier claim of this name, as far as they are still held, with their leases renewed; None when
    nothing was granted to it."""
    request = Request(credential, check_name(request_id, "request_id"), "")
    with database.reading() as transaction:
        known = transaction.rows(sql.GRANTED, request.key)
    if not known:
        return None
    nonce, jobs = known[0]
    request = replace(request, nonce=nonce)
    messages = {job_id: message for job_id, _attempt, message in rows.parsed(jobs, database.dialect)}
    held = _still_held(database, request, messages)
    beats = [Beat(job.job_id, job.attempt, job.lease_token, credential=credential) for job in held]
    lost = {beaten.job_id for beaten in heartbeat(database, beats) if beaten.status is Status.REFUSED}
    return [job for job in held if job.job_id not in lost]


def known(database: Database, requests: Iterable[tuple[str, str]]) -> set[tuple[str, str]]:
    """Those of them (credential and request id) that were granted something."""
    asked = {(credential, digests.request_digest(request)): (credential, request) for credential, request in requests}
    if not asked:
        return set()
    keys = [{"credential": credential, "request": request} for credential, request in asked]
    with database.reading() as transaction:
        found = transaction.rows(sql.KNOWN, {"rows": json.dumps(keys)})
    return {asked[credential, request] for credential, request in found}


def _still_held(database: Database, request: Request, messages: dict[str, str | None]) -> list[Claimed]:
    with database.reading() as transaction:
        found = {row[0]: row for row in transaction.rows(HELD_JOBS, {"ids": json.dumps(list(messages))})}
    held = []
    for job_id, message in messages.items():
        token = digests.lease_token(request.secret, job_id)
        if job_id in found and found[job_id][-1] == digests.token_digest(token, request.credential):
            job = rows.claimed(found[job_id][:-1], token)
            held.append(replace(job, message_id=message))
    return held


def _remember(transaction: CursorTransaction, request: Request, found: list[Claimed]) -> None:
    jobs = [[job.job_id, job.attempt, job.message_id] for job in found]
    if not transaction.rows(sql.GRANT, {**request.key, "nonce": request.nonce, "jobs": json.dumps(jobs)}):
        raise _Taken


def forget(database: Database, keep_seconds: float, limit: int) -> int:
    """Drop what nobody will ask for again; how many they were."""
    check_integer(limit, "limit", 1, 1_000_000)
    with database.statement() as transaction:
        return len(transaction.rows(sql.FORGET, {"keep": keep_seconds, "limit": limit}))
