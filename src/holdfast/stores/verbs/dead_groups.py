"""Dead letters by what they died of: task, error code, and the message without what differs from job to job."""

from __future__ import annotations

import heapq
from collections.abc import Sequence
from datetime import datetime

from holdfast.domain.causes import LONGEST_MESSAGE, cause
from holdfast.domain.names import check_integer, check_name
from holdfast.domain.views import DeadGroup, DeadGroups
from holdfast.stores import rows
from holdfast.stores.database import Database, Row
from holdfast.stores.statements import dead as sql

MOST_LOOKED = 100_000


def dead_groups(database: Database, queues: Sequence[str] | None, most: int) -> DeadGroups:
    """Of the newest `most`: the last to be enqueued, or with queues the last to have ended."""
    check_integer(most, "most", 1, MOST_LOOKED)
    found = _newest(database, queues, most + 1)
    groups: dict[tuple[str, str | None, str], DeadGroup] = {}
    for row in found[:most]:
        one = _alone(row)
        key = (one.task, one.code, cause(one.message))
        groups[key] = one if key not in groups else _with(groups[key], one)
    ordered = sorted(groups.values(), key=lambda group: (-group.count, group.task, group.code or "", group.message))
    return DeadGroups(tuple(ordered), min(len(found), most), len(found) > most)


def _newest(database: Database, queues: Sequence[str] | None, most: int) -> list[Row]:
    wanted = {"most": most, "length": LONGEST_MESSAGE}
    with database.reading() as transaction:
        if queues is None:
            return transaction.rows(sql.CAUSES, wanted)
        named = {check_name(queue, "queue") for queue in queues}
        found = [row for queue in sorted(named) for row in transaction.rows(sql.CAUSES_IN, {**wanted, "queue": queue})]
    return found if len(named) == 1 else heapq.nlargest(most, found, key=lambda row: row[4])


def _alone(row: Row) -> DeadGroup:
    job_id, task, code, message, finished_at = row
    code = None if code is None else str(code)
    return DeadGroup(task, code, "" if message is None else str(message), 1, rows.some_moment(finished_at), job_id)


def _with(group: DeadGroup, one: DeadGroup) -> DeadGroup:
    """What was found first stays its example."""
    newest = _later(group.newest_at, one.newest_at)
    return DeadGroup(group.task, group.code, group.message, group.count + 1, newest, group.example_id)


def _later(one: datetime | None, other: datetime | None) -> datetime | None:
    return max((moment for moment in (one, other) if moment is not None), default=None)
