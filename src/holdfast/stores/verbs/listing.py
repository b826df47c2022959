"""Read lists for clients of a control plane: of their queues only, small enough to be sent, cheap enough to be asked
for all the time. The filter is in the query: a page is full of what its reader may see."""

from __future__ import annotations

import json
from collections import Counter
from collections.abc import Collection, Sequence
from dataclasses import replace

from holdfast.domain.lifecycle import State
from holdfast.domain.names import check_id, check_integer, check_name
from holdfast.domain.views import Listed, QueueSettings, Refusal, StateCount
from holdfast.stores import rows
from holdfast.stores.database import Database, Row
from holdfast.stores.statements import listing as sql
from holdfast.stores.statements.queries import JOB_COLUMNS
from holdfast.stores.verbs.querying import MAX_PAGE, refusal

MOST_INLINE_BYTES = 4_096
MOST_COUNTED = 100_000


def running(database: Database, limit: int) -> list[Listed]:
    wanted = {"limit": check_integer(limit, "limit", 1, MAX_PAGE), "most": MOST_INLINE_BYTES}
    with database.reading() as transaction:
        return [listed(row, database.dialect) for row in transaction.rows(sql.RUNNING, wanted)]


def listed(row: Row, dialect: str) -> Listed:
    columns, whole = row[: len(JOB_COLUMNS)], row[len(JOB_COLUMNS) :]
    omitted = tuple(name for name, fits in zip(sql.LARGE, whole, strict=True) if not fits)
    found = rows.job(columns, dialect)
    return Listed(replace(found, payload={}) if "payload" in omitted else found, omitted)


def queue_of(database: Database, job_id: str) -> str | None:
    with database.reading() as transaction:
        found = transaction.rows(sql.QUEUE_OF, {"id": check_id(job_id, "job_id")})
    return str(found[0][0]) if found else None


def queues_of(database: Database, job_ids: Collection[str]) -> dict[str, str]:
    if not job_ids:
        return {}
    wanted = {"ids": json.dumps([check_id(job_id, "job_id") for job_id in job_ids])}
    with database.reading() as transaction:
        return {str(job_id): str(queue) for job_id, queue in transaction.rows(sql.QUEUES_OF, wanted)}


def queue_settings(database: Database, name: str) -> QueueSettings:
    with database.reading() as transaction:
        found = transaction.rows(sql.QUEUE_SETTINGS, {"name": check_name(name, "queue")})
    if not found:
        return QueueSettings(name)
    return QueueSettings(name, rows.moment(found[0][1]), found[0][2])


def refusals_in(database: Database, queues: Sequence[str]) -> list[Refusal]:
    with database.reading() as transaction:
        return [refusal(row) for row in transaction.rows(sql.REFUSALS, {"queues": names(queues)})]


def state_counts(database: Database, queues: Sequence[str] | None, most: int) -> list[StateCount]:
    check_integer(most, "most", 1, MOST_COUNTED)
    given = {"most": most} | ({} if queues is None else {"queues": names(queues)})
    found: dict[State, tuple[int, bool]] = dict.fromkeys(State, (0, False))
    with database.reading() as transaction:
        for states in sql.INDEXED:
            counted = transaction.rows(sql.counts(states, queues is not None), given)
            looked_at = Counter[str]()
            for queue, _state, count in counted:
                looked_at[queue] += int(count)
            for queue, state, count in counted:
                so_far, at_least = found[State(state)]
                is_cut = most in (int(count), looked_at[queue])
                found[State(state)] = (so_far + int(count), at_least or is_cut)
    return [StateCount(state, count, at_least) for state, (count, at_least) in found.items()]


def names(queues: Sequence[str] | None) -> str | None:
    return None if queues is None else json.dumps([check_name(queue, "queue") for queue in queues])
