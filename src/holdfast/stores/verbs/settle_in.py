"""Settle one report in the user's own open Postgres transaction: its effects and the job's end are one commit.

The statement and its test of the token are those of every settle. What differs is what may not happen in somebody
else's transaction: a refusal is answered and not written down, because the row of its evidence would stay locked until
the user's commit and hold up whoever else has a refusal to record.

While the transaction is open the job's row is locked by it: its own heartbeat is busy, the reaper passes it over, and
nobody else's job notices. The job's source is touched only while its last jobs have failed, because a breaker that is
half open must be able to close; then no other job of that source can start before the user's commit.
"""

from __future__ import annotations

import sqlite3
import time
from typing import Any

from holdfast.domain.answers import Settled, Status
from holdfast.domain.errors import ConfigurationError, InvalidInput, LeaseLost
from holdfast.domain.outcome import Report
from holdfast.stores.database import BorrowedTransaction, Transaction, borrow
from holdfast.stores.statements.words import POSTGRES
from holdfast.stores.verbs import lost, settling
from holdfast.stores.verbs.breaker import settle_failing_sources
from holdfast.stores.verbs.checking import check

_NEEDS_POSTGRES = "complete_in needs Postgres: on SQLite finish the job by returning its result."


def complete_in(connection: Any, report: Report) -> None:
    """Needs nothing but the connection: it runs in a process that has no store."""
    answer = settle_in(connection, report)
    if not answer.ok:
        raise LeaseLost(
            f"job {answer.job_id}, attempt {answer.attempt}: its completion was not accepted ({_why(answer)});"
            " roll your transaction back, because the job is or will be run by somebody else"
        )


def settle_in(connection: Any, report: Report) -> Settled:
    checked = check(report)
    transaction = _borrow_postgres(connection)
    # Its own heartbeat may have the row for a moment; that moment is all that is waited for.
    for tried in range(settling.BUSY_TRIES):
        applied = settling.apply(transaction, [checked])
        if checked.job_id in applied.settled:
            settle_failing_sources(transaction, applied.endings)
            return applied.settled[checked.job_id]
        answer = settling.judge(lost.look_into(transaction, [checked.job_id]), checked)
        if answer.status is not Status.BUSY:
            return answer
        time.sleep(0.002 * 2**tried)
    return answer


def _borrow_postgres(connection: Any) -> Transaction:
    if isinstance(connection, sqlite3.Connection):
        raise ConfigurationError(_NEEDS_POSTGRES)
    transaction = borrow(connection, None)
    if transaction is None:
        raise InvalidInput(
            "connection",
            "must be a SQLAlchemy Connection or Session, or a psycopg connection; of an AsyncSession or"
            f" AsyncConnection give the one inside its run_sync; got {type(connection).__name__}",
        )
    if transaction.dialect != POSTGRES:
        raise ConfigurationError(_NEEDS_POSTGRES)
    if _commits_by_itself(transaction):
        raise InvalidInput("connection", "is in autocommit and has no open transaction; begin one, then complete in it")
    return transaction


def _commits_by_itself(transaction: Transaction) -> bool:
    """As far as psycopg can tell: the job would end at once, whatever becomes of the user's own writes."""
    import psycopg

    if isinstance(transaction, BorrowedTransaction):
        driver = transaction.connection.connection.driver_connection
    else:
        driver = getattr(getattr(transaction, "cursor", None), "connection", None)
    if not isinstance(driver, psycopg.Connection | psycopg.AsyncConnection):
        return False
    return driver.autocommit and driver.info.transaction_status is psycopg.pq.TransactionStatus.IDLE


def _why(answer: Settled) -> str:
    if answer.status is Status.BUSY:
        return "busy: another transaction has the job's row locked"
    return str(answer.reason)
