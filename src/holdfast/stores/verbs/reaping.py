"""Reap: read the expired leases in pages, decide purely, apply with the same test inside the update.

Between the reading and the writing anything may happen to a job: completed, or completed, requeued and claimed again.
The update names the very lease that was read and tests its expiry once more, so a stale decision changes nothing.
"""

from __future__ import annotations

import json
import random
from collections.abc import Iterator, Sequence

from holdfast.domain.answers import Reaped, Settled, Status
from holdfast.domain.lifecycle import State
from holdfast.domain.outcome import LeaseLost
from holdfast.domain.settle import settle
from holdfast.stores import rows
from holdfast.stores.database import CursorTransaction, Database, Row, Transaction
from holdfast.stores.statements import reap as sql
from holdfast.stores.statements.settle import REAP
from holdfast.stores.verbs import clock_step
from holdfast.stores.verbs.settling import encode_row, standing

PAGE = 500
_NIL = "00000000-0000-0000-0000-000000000000"


def reap(database: Database, holder: str, period: float, lease_seconds: float, heartbeat_seconds: float) -> Reaped:
    """One pass, if it is our turn: at most one pass per period, whoever asks."""
    turn = {"holder": holder, "period": period, "gap": lease_seconds - heartbeat_seconds}
    with database.statement() as transaction:
        ticked = transaction.rows(sql.TICK, turn)
    if not ticked:
        return Reaped(False)
    settled: list[Settled] = []
    something_runs, noted, ticked_at = bool(ticked[0][0]), ticked[0][1], rows.moment(ticked[0][2])
    assert ticked_at is not None
    corrected = clock_step.correct(database, noted, ticked_at, something_runs=something_runs)
    for page in _expired_pages(database) if something_runs else ():
        with database.statement() as transaction:
            settled += apply(transaction, page)
    return Reaped(True, tuple(settled), corrected)


def _expired_pages(database: Database) -> Iterator[list[Row]]:
    """By keyset, so that rows which cannot be reaped now never hide those behind them."""
    queue, job_id = "", _NIL
    while True:
        with database.reading() as transaction:
            page = transaction.rows(sql.EXPIRED, {"queue": queue, "id": job_id, "page": PAGE})
        if page:
            yield page
        if len(page) < PAGE:
            return
        job_id, queue = page[-1][0], page[-1][1]


def reap_these(transaction: CursorTransaction, job_ids: Sequence[str], gap: float) -> list[Settled]:
    """The same for some jobs, as the first half of claiming them by id."""
    expired = transaction.rows(sql.EXPIRED_THESE, {"ids": json.dumps(job_ids)})
    if expired:
        transaction.run(sql.NOTE_OUTAGE, {"gap": gap})
    return apply(transaction, expired)


def apply(transaction: Transaction, expired: Sequence[Row]) -> list[Settled]:
    if not expired:
        return []
    attempts = {row[0]: row[2] for row in expired}
    encoded = ",".join(_encode(row, transaction.dialect) for row in expired)
    found = transaction.rows(REAP, {"rows": f"[{encoded}]"})
    return [Settled(i, attempts[i], Status.APPLIED, event, State(state)) for i, event, state, _source in found]


def _encode(row: Row, dialect: str) -> str:
    job_id, _queue, attempt, digest, *policy = row
    ending = LeaseLost()
    transition = settle(standing(policy, dialect), ending, random.random())
    return encode_row({"id": job_id, "attempt": attempt, "token": digest}, ending, transition, {"by": "reaper"})
