"""What operators do: cancel, requeue, pause, limit. Each answers per job what became of it."""

from __future__ import annotations

import json
import time
from collections.abc import Callable, Sequence
from typing import Any

from holdfast.domain.answers import Operated, OperatorAnswer
from holdfast.domain.lifecycle import CLAIMABLE, State
from holdfast.domain.names import check_id, check_integer, check_name
from holdfast.domain.spec import encode_json
from holdfast.stores.database import Database, Transaction
from holdfast.stores.statements import operate
from holdfast.stores.statements.words import Statement

BUSY_TRIES = 7
MAX_LIMIT = 1_000_000
_REQUEUEABLE = (State.FAILED, State.CANCELLED)

# Why a job was left as it is, from its state, whether a cancel was requested, and whether its unique key is taken.
Explain = Callable[[State, bool, bool], Operated]


def cancel(database: Database, job_ids: Sequence[str]) -> list[OperatorAnswer]:
    def explain(state: State, requested: bool, _key_taken: bool) -> Operated:
        if state in CLAIMABLE:
            return Operated.BUSY
        if state is State.RUNNING:
            return Operated.CANCEL_REQUESTED if requested else Operated.BUSY
        return Operated.CANCELLED if state is State.CANCELLED else Operated.WRONG_STATE

    return _operate(database, operate.CANCEL, job_ids, {"by": "operator"}, explain)


def requeue(database: Database, job_ids: Sequence[str]) -> list[OperatorAnswer]:
    """Jobs with a unique key go one by one. To take a key may mean to wait for somebody who is taking it too, and
    who waits while he has others may wait in a circle."""

    def explain(state: State, _requested: bool, key_taken: bool) -> Operated:
        if state not in _REQUEUEABLE:
            return Operated.WRONG_STATE
        return Operated.KEY_TAKEN if key_taken else Operated.BUSY

    ids = [check_id(job_id, "job_id") for job_id in job_ids]
    with database.reading() as transaction:
        with_keys = {row[0] for row in transaction.rows(operate.WITH_KEYS, {"ids": json.dumps(ids)})}
    together = [job_id for job_id in ids if job_id not in with_keys]
    answers: dict[str, OperatorAnswer] = {}
    for batch in (together, *([job_id] for job_id in sorted(with_keys))):
        for answer in _operate(database, operate.REQUEUE, batch, {"by": "operator"}, explain):
            answers[answer.job_id] = answer
    return [answers[job_id] for job_id in ids]


def _operate(
    database: Database, statement: Statement, job_ids: Sequence[str], detail: dict[str, Any], explain: Explain
) -> list[OperatorAnswer]:
    """Rows that are locked are skipped and asked for again for a while: an operator never holds up a worker."""
    ids = [check_id(job_id, "job_id") for job_id in job_ids]
    answers: dict[str, OperatorAnswer] = {}
    waiting = list(dict.fromkeys(ids))
    for tried in range(BUSY_TRIES):
        if not waiting:
            break
        if tried:
            time.sleep(0.002 * 2**tried)
        parameters = {"ids": json.dumps(waiting), "detail": encode_json(detail)}
        for job_id, event, state in _changed(database, statement, parameters):
            answers[job_id] = OperatorAnswer(job_id, Operated(event), State(state))
        waiting = [job_id for job_id in waiting if job_id not in answers]
        with database.reading() as transaction:
            answers |= _unchanged(transaction, waiting, explain)
        waiting = [job_id for job_id in waiting if answers[job_id].did is Operated.BUSY]
    return [answers[job_id] for job_id in ids]


def _changed(database: Database, statement: Statement, parameters: dict[str, Any]) -> list[Any]:
    try:
        with database.statement() as transaction:
            return transaction.rows(statement, parameters)
    except database.integrity_errors:
        # A unique key was taken between the test and the write: nothing was changed; the next try sees its holder.
        return []


def _unchanged(transaction: Transaction, job_ids: Sequence[str], explain: Explain) -> dict[str, OperatorAnswer]:
    if not job_ids:
        return {}
    found = {row[0]: row[1:] for row in transaction.rows(operate.PRESENT, {"ids": json.dumps(list(job_ids))})}
    answers = {}
    for job_id in job_ids:
        if job_id not in found:
            answers[job_id] = OperatorAnswer(job_id, Operated.NOT_FOUND)
            continue
        state, requested, key_taken = found[job_id]
        answers[job_id] = OperatorAnswer(job_id, explain(State(state), bool(requested), bool(key_taken)), State(state))
    return answers


def set_queue(database: Database, statement: Statement, name: str, **values: Any) -> None:
    check_name(name, "queue")
    if values.get("max_running") is not None:
        check_integer(values["max_running"], "max_running", 0, MAX_LIMIT)
    with database.statement() as transaction:
        transaction.run(statement, {"name": name, **values})
