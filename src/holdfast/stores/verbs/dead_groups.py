"""Dead letters by what they died of: task, error code, and the message without what differs from job to job.

Looked at are the newest of all, by the index of failed jobs; of some queues, the last of each to have ended.
"""

from __future__ import annotations

import json
from collections.abc import Sequence
from dataclasses import replace
from datetime import datetime

from holdfast.domain.causes import LONGEST_MESSAGE, cause
from holdfast.domain.names import check_integer, check_name
from holdfast.domain.views import DeadGroup, DeadGroups
from holdfast.stores import rows
from holdfast.stores.database import Database, Row, Transaction
from holdfast.stores.statements import dead as sql
from holdfast.stores.verbs.following import following

MOST_LOOKED = 100_000
MOST_GROUPS = 1_000


def dead_groups(database: Database, queues: Sequence[str] | None, most: int) -> DeadGroups:
    check_integer(most, "most", 1, MOST_LOOKED)
    named = None if queues is None else sorted({check_name(queue, "queue") for queue in queues})
    with following(database) as transaction:
        found = _found(transaction, named, most)
        counts = [sum(int(row[3]) for row in some) for some in found]
        groups = _grouped([row for some in found for row in some])
        return DeadGroups(_with_messages(transaction, groups), sum(counts), max(counts, default=0) >= most)


def _found(transaction: Transaction, queues: list[str] | None, most: int) -> list[list[Row]]:
    wanted = {"most": most, "length": LONGEST_MESSAGE}
    if queues is None:
        return [transaction.rows(sql.CAUSES, wanted)]
    return [transaction.rows(sql.CAUSES_IN, {**wanted, "queue": queue}) for queue in queues]


def _grouped(found: Sequence[Row]) -> list[DeadGroup]:
    groups: dict[tuple[str, str | None, str], DeadGroup] = {}
    for task, said_code, said, count, newest, example in found:
        code, message = None if said_code is None else str(said_code), "" if said is None else str(said)
        one = DeadGroup(task, code, message, int(count), rows.some_moment(newest), example)
        key = (task, code, cause(message))
        groups[key] = one if key not in groups else _together(groups[key], one)
    return sorted(groups.values(), key=lambda group: (-group.count, group.task, group.code or "", group.message))


def _together(one: DeadGroup, other: DeadGroup) -> DeadGroup:
    last = max(one, other, key=lambda group: group.example_id)
    return replace(last, count=one.count + other.count, newest_at=_later(one.newest_at, other.newest_at))


def _later(one: datetime | None, other: datetime | None) -> datetime | None:
    return max((moment for moment in (one, other) if moment is not None), default=None)


def _with_messages(transaction: Transaction, groups: Sequence[DeadGroup]) -> tuple[DeadGroup, ...]:
    """Each with that of its example, as it was said."""
    shown = groups[:MOST_GROUPS]
    ids = json.dumps([group.example_id for group in shown])
    said = {row[0]: row[1] for row in transaction.rows(sql.MESSAGES, {"ids": ids, "length": LONGEST_MESSAGE})}
    messages = [said.get(group.example_id) for group in shown]
    return tuple(
        replace(group, message="" if message is None else str(message))
        for group, message in zip(shown, messages, strict=True)
    )
