"""The walk over the lanes on SQLite: the loop that `statements/lanes.py` describes, two statements a priority."""

from __future__ import annotations

import json
from collections.abc import Iterator
from typing import NamedTuple

from holdfast.stores.database import CursorTransaction, Row
from holdfast.stores.statements import sqlite_look as sql
from holdfast.stores.statements.words import Statement
from holdfast.stores.verbs.looking import Candidate, Looking

_Head = tuple[str, str, str, str]  # run_after, id, task, source


class _Lane(NamedTuple):
    task: str
    source: str
    limited: bool
    metered: bool
    room: int | None


def walk(transaction: CursorTransaction, looking: Looking, *, ungoverned: bool = False) -> list[Candidate]:
    """What could be claimed, in that order; `ungoverned`: only what no limit has a say in."""
    closed, limited = _closed_and_limited_queues(transaction)
    if ungoverned:
        closed |= limited
    found: list[Candidate] = []
    for queue in looking.queues if looking.queues is not None else _all_queues(transaction):
        if queue in closed or queue in looking.shut:
            continue
        for priority in _priorities(transaction, queue):
            here = {"queue": queue, "priority": priority}
            statement = sql.UNGOVERNED_LANES if ungoverned else sql.OPEN_LANES
            lanes = [_Lane(*row) for row in _lanes(transaction, statement, looking, here)]
            cut = len(lanes) >= looking.lanes
            by_source = {lane.source: lane for lane in lanes}
            for _due, job_id, task, source in _merged(transaction, lanes, here, looking.window - len(found)):
                lane = by_source[source]
                standing = (bool(lane.limited), queue in limited, cut, priority, lane.room, bool(lane.metered))
                found.append(Candidate(job_id, task, source, queue, *standing))
            if cut or len(found) >= looking.window:
                return found
    return found


def waiting(transaction: CursorTransaction, looking: Looking) -> list[Row]:
    """The sources that have something due, each with how it stands."""
    found: dict[str, Row] = {}
    for queue in looking.queues if looking.queues is not None else _all_queues(transaction):
        for priority in _priorities(transaction, queue):
            for row in _lanes(transaction, sql.WAITING_LANES, looking, {"queue": queue, "priority": priority}):
                found[row[1]] = row[2:]
    return list(found.values())


def _closed_and_limited_queues(transaction: CursorTransaction) -> tuple[set[str], set[str]]:
    found = transaction.rows(sql.QUEUES)
    closed = {name for name, paused, most, running in found if paused or (most is not None and running >= most)}
    return closed, {name for name, _paused, most, _running in found if most is not None}


def _lanes(
    transaction: CursorTransaction, statement: Statement, looking: Looking, here: dict[str, object]
) -> list[Row]:
    """From where the last walk left off, and round, as many as are wanted: each has a row to give."""
    parameters: dict[str, object] = {
        **here,
        "tasks": None if looking.tasks is None else json.dumps(looking.tasks),
        "closed": json.dumps(list(looking.closed)),
        "lanes": looking.lanes,
    }
    after = {"after_task": looking.after[0], "after_source": looking.after[1]}
    found = transaction.rows(statement, {**parameters, **after, "until_task": "", "until_source": ""})
    if looking.after[0] and len(found) < looking.lanes:
        parameters["lanes"] = looking.lanes - len(found)
        until = {"until_task": looking.after[0], "until_source": looking.after[1]}
        found += transaction.rows(statement, {**parameters, **until, "after_task": "", "after_source": ""})
    return found


def _merged(transaction: CursorTransaction, lanes: list[_Lane], here: dict[str, object], wanted: int) -> list[_Head]:
    """The heads of these lanes in one order. First a few of each are read; what comes after the horizon, the last that
    was read of some lane, is not known to be in order: if it is needed, more is read."""
    depth = 2 + 3 * wanted // (2 * max(1, len(lanes)))
    while lanes:
        read = _heads(transaction, lanes, here, min(depth, wanted))
        horizon = min((heads[-1] for heads in read if len(heads) == depth < wanted), default=None)
        known = sorted(head for heads in read for head in heads if horizon is None or head <= horizon)
        if horizon is None or len(known) >= wanted:
            return known[:wanted]
        depth *= 4
    return []


def _heads(
    transaction: CursorTransaction, lanes: list[_Lane], here: dict[str, object], depth: int
) -> list[list[_Head]]:
    """So many of each lane, but no more than its source has room for."""
    by_depth: dict[int, list[dict[str, str]]] = {}
    for lane in lanes:
        most = depth if lane.room is None else min(depth, lane.room)
        by_depth.setdefault(most, []).append({"task": lane.task, "source": lane.source})
    return [
        [(due, job_id, task, source) for due, job_id in json.loads(heads)]
        for most, some in by_depth.items()
        for task, source, heads in transaction.rows(sql.HEADS, {**here, "rows": json.dumps(some), "depth": most})
    ]


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
