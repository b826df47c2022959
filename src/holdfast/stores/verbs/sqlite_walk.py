"""The walk over the lanes on SQLite: the loop that `statements/claim.py` describes, one probe of the index a step."""

from __future__ import annotations

import heapq
from collections.abc import Iterator, Mapping, Sequence
from itertools import islice

from holdfast.domain.webhook import DELIVERY_TASK
from holdfast.stores.database import CursorTransaction
from holdfast.stores.statements import claim as sql
from holdfast.stores.statements.words import Statement, Words

Head = tuple[str, str, str]  # run_after, id, source


def _paused(_words: Words) -> str:
    return "SELECT name FROM holdfast_queues WHERE paused_at IS NOT NULL"


def _limited(_words: Words) -> str:
    return "SELECT name FROM holdfast_queues WHERE max_running IS NOT NULL"


def _governed(_words: Words) -> str:
    return "SELECT name FROM holdfast_sources"


PAUSED = Statement("walk.paused", _paused)
LIMITED = Statement("walk.limited", _limited)
GOVERNED = Statement("walk.governed", _governed)


def walk(
    transaction: CursorTransaction,
    queues: Sequence[str] | None,
    tasks: Sequence[str] | None,
    limit: int,
    allowances: Mapping[str, int | None],
    queue_allowances: Mapping[str, int],
) -> list[str]:
    """The ids to claim, in order."""
    left = {name: limit if allowance is None else allowance for name, allowance in allowances.items()}
    for (name,) in transaction.rows(GOVERNED):
        left.setdefault(name, 0)
    queue_left = dict(queue_allowances)
    for (name,) in transaction.rows(LIMITED):
        queue_left.setdefault(name, 0)
    closed = {row[0] for row in transaction.rows(PAUSED)}
    chosen: list[str] = []
    for queue in queues if queues is not None else _all_queues(transaction):
        if queue in closed:
            continue
        room = min(limit - len(chosen), queue_left.get(queue, limit))
        chosen += _from_queue(transaction, queue, tasks, room, left)
        if len(chosen) >= limit:
            break
    return chosen


def _from_queue(
    transaction: CursorTransaction, queue: str, tasks: Sequence[str] | None, room: int, left: dict[str, int]
) -> list[str]:
    chosen: list[str] = []
    for priority in _priorities(transaction, queue):
        if len(chosen) >= room:
            break
        heads = [
            _head(transaction, queue, priority, task, source, min(room - len(chosen), left.get(source, room)))
            for task, source in _lanes(transaction, queue, priority)
            if (task != DELIVERY_TASK if tasks is None else task in tasks) and left.get(source, 1) > 0
        ]
        for _due, job_id, source in islice(_admitted(heapq.merge(*heads), left), room - len(chosen)):
            chosen.append(job_id)
            if source in left:
                left[source] -= 1
    return chosen


def _admitted(heads: Iterator[Head], left: Mapping[str, int]) -> Iterator[Head]:
    """A limit is shared by all lanes of its source."""
    return (head for head in heads if left.get(head[2], 1) > 0)


def _head(transaction: CursorTransaction, queue: str, priority: int, task: str, source: str, limit: int) -> list[Head]:
    found = transaction.rows(
        sql.LANE_HEAD, {"queue": queue, "priority": priority, "task": task, "source": source, "limit": limit}
    )
    return [(row[0], row[1], row[2]) for row in found]


def _all_queues(transaction: CursorTransaction) -> list[str]:
    """Drawn by lot, as on Postgres: no queue may starve behind another's name."""
    import random

    names: list[str] = []
    while found := transaction.rows(sql.NEXT_QUEUE, {"queue": names[-1] if names else ""}):
        names.append(found[0][0])
    random.shuffle(names)
    return names


def _priorities(transaction: CursorTransaction, queue: str) -> Iterator[int]:
    below = 101
    while found := transaction.rows(sql.NEXT_PRIORITY, {"queue": queue, "below": below}):
        below = found[0][0]
        yield below


def _lanes(transaction: CursorTransaction, queue: str, priority: int) -> Iterator[tuple[str, str]]:
    here: dict[str, object] = {"queue": queue, "priority": priority}
    task = ""
    while found := transaction.rows(sql.NEXT_TASK, {**here, "task": task}):
        task = found[0][0]
        sources = transaction.rows(sql.FIRST_SOURCE, {**here, "task": task})
        while sources:
            yield task, sources[0][0]
            sources = transaction.rows(sql.NEXT_SOURCE, {**here, "task": task, "source": sources[0][0]})
