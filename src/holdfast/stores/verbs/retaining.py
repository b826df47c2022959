"""Retention: prune finished jobs, retire old histories, a batch at a time.

A batch is one short transaction: at most so many jobs, cut shorter where they have many rows elsewhere. On Postgres it
locks what it takes and passes over what is locked, and every test is repeated in the statement that deletes, so a job
that was requeued meanwhile stays. With a job go its log lines and the rows of its artifacts; the files are collected by
whoever finds that nobody speaks of them. The `pruned` event is left by the guards, and so is the watermark when a
history goes through the door.
"""

from __future__ import annotations

import json
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from typing import Any

from holdfast.domain.lifecycle import State
from holdfast.domain.names import check_id, check_integer
from holdfast.domain.retention import (
    Found,
    Group,
    Kept,
    Preview,
    Pruned,
    Retired,
    Rule,
    Rules,
    Watermark,
    check_rule,
)
from holdfast.stores import rows
from holdfast.stores.database import CursorTransaction, Database
from holdfast.stores.ids import new_ids
from holdfast.stores.statements import retention as sql
from holdfast.stores.statements.words import POSTGRES, Statement

MAX_BATCH = 10_000
MOST_LINES = 5_000  # log lines in a batch, unless a single job has more
MOST_EVENTS = 5_000  # audit rows in a batch, unless a single history has more
MAX_RETIRED_IDS = 10_000  # UUIDv7s of retired histories that are known one by one
COUNTED = 1_000_000  # a preview counts no further than that in a group
_NIL = "00000000-0000-0000-0000-000000000000"


def rules(database: Database) -> Rules:
    with database.reading() as transaction:
        found = transaction.rows(sql.RULES)
    return Rules(
        Rule(Kept(what), queue, State(state), keep, rows.moment(updated)) for what, queue, state, keep, updated in found
    )


def set_rule(database: Database, what: str, queue: str, state: str, keep_seconds: float | None) -> None:
    kept, queue, ended = check_rule(what, queue, state)
    parameters = {"what": str(kept), "queue": queue, "state": str(ended), "keep": keep_seconds}
    with database.statement() as transaction:
        transaction.run(sql.SET_RULE, parameters)


def unset_rule(database: Database, what: str, queue: str, state: str) -> bool:
    kept, queue, ended = check_rule(what, queue, state)
    with database.statement() as transaction:
        return bool(transaction.rows(sql.UNSET_RULE, {"what": str(kept), "queue": queue, "state": str(ended)}))


def due(database: Database, what: Kept) -> list[Group]:
    """The groups of which something has been kept for long enough."""
    with database.reading() as transaction:
        found = [
            Found(what, queue, State(state), float(age)) for queue, state, age in transaction.rows(sql.FOUND[what])
        ]
    return rules(database).due(found) if found else []


def preview(database: Database, most: int = COUNTED) -> list[Preview]:
    """What a run would remove now, group by group. Counting ends at `most` in each."""
    groups = [group for what in Kept for group in due(database, what)]
    found = [_preview(database, group, most) for group in groups]
    return [group for group in found if group is not None]


def _preview(database: Database, group: Group, most: int) -> Preview | None:
    assert group.keep_seconds is not None
    with _read_plainly(database) as transaction:
        [(count, events, oldest)] = transaction.rows(sql.PREVIEW[group.what], {**_named(group), "most": most})
    oldest_at = rows.moment(oldest)
    if oldest_at is None:
        return None
    return Preview(
        group.what, group.queue, group.state, group.keep_seconds, int(count), int(events), oldest_at, count < most
    )


def prune(database: Database, group: Group, limit: int) -> Pruned:
    """Delete the oldest finished jobs of the group that have been kept for long enough."""
    if group.keep_seconds is None:
        return Pruned(())
    check_integer(limit, "limit", 1, MAX_BATCH)
    with database.transaction() as transaction:
        _plan_plainly(transaction)
        found = [row[0] for row in transaction.rows(sql.PRUNABLE, {**_named(group), "limit": limit})]
        ids = _remove(transaction, found, group.state, group.keep_seconds)
    return Pruned(tuple(ids), more=len(found) == limit or len(ids) < len(found))


def purge(database: Database, job_ids: Sequence[str], state: State, older_than: float) -> Pruned:
    """Delete these jobs, as far as they are in this state, ended so long ago, and are not locked."""
    ids = [check_id(job_id, "job_id") for job_id in job_ids]
    with database.transaction() as transaction:
        _plan_plainly(transaction)
        named = {"ids": json.dumps(ids), "state": str(state), "keep": float(older_than)}
        found = [row[0] for row in transaction.rows(sql.STILL, named)]
        gone = _remove(transaction, found, state, older_than)
    return Pruned(tuple(gone), more=len(gone) < len(found))


def _remove(transaction: CursorTransaction, found: list[str], state: State, keep_seconds: float) -> list[str]:
    if not found:
        return []
    ids = json.dumps(_few_lines(transaction, found))
    for table in ("holdfast_logs", "holdfast_artifacts"):
        transaction.run(sql.forget(table), {"ids": ids})
    gone = transaction.rows(sql.DELETE_JOBS, {"ids": ids, "state": str(state), "keep": float(keep_seconds)})
    return [row[0] for row in gone]


def _few_lines(transaction: CursorTransaction, job_ids: list[str]) -> list[str]:
    """So many of the jobs that their log lines together are few; at least one."""
    while len(job_ids) > 1:
        most = {"ids": json.dumps(job_ids), "most": MOST_LINES + 1}
        [(lines,)] = transaction.rows(sql.COUNT_LINES, most)
        if lines <= MOST_LINES:
            break
        job_ids = job_ids[: len(job_ids) // 2]
    return job_ids


def retire(database: Database, group: Group, limit: int) -> Retired:
    """Delete the oldest whole histories of the group, with what else is left of their jobs."""
    if group.keep_seconds is None:
        return Retired(0, 0)
    check_integer(limit, "limit", 1, MAX_BATCH)
    with database.transaction() as transaction:
        _plan_plainly(transaction)
        if not _has_door(transaction):
            return Retired(0, 0)
        found = transaction.rows(sql.RETIRABLE, {**_named(group), "limit": limit})
        lengths = {row[0]: int(row[1]) for row in found}
        job_ids, gone = _few_events(lengths), []
        if job_ids:
            ids = {"ids": json.dumps(job_ids)}
            # The last one only for an id that was inserted by hand a second time.
            for table in ("holdfast_refusals", "holdfast_logs", "holdfast_artifacts", "holdfast_retired_histories"):
                transaction.run(sql.forget(table), ids)
            gone = [row[0] for row in transaction.rows(sql.RETIRE, ids)]
            _fold_retired_ids(transaction)
    events = sum(lengths[job_id] for job_id in gone)
    return Retired(len(gone), events, more=len(found) == limit or len(job_ids) < len(found))


def _fold_retired_ids(transaction: CursorTransaction) -> None:
    """Keep one id for all UUIDv7s but the newest. Generated ids are UUIDv7s: their rows would grow for ever."""
    folded = transaction.rows(sql.FOLD_RETIRED_IDS, {"before": new_ids(1)[0], "keep": MAX_RETIRED_IDS})
    if folded:
        transaction.run(sql.RAISE_RETIRED_IDS, {"id": max(row[0] for row in folded)})


def _has_door(transaction: CursorTransaction) -> bool:
    """Nobody waits for another's batch: the watermark is one row, and who has it is alone at the door."""
    return bool(transaction.rows(sql.TAKE_WATERMARK)) or not transaction.rows(sql.WATERMARK)


def _few_events(lengths: Mapping[str, int]) -> list[str]:
    job_ids: list[str] = []
    events = 0
    for job_id, length in lengths.items():
        if job_ids and events + length > MOST_EVENTS:
            break
        job_ids.append(job_id)
        events += length
    return job_ids


def forget_ticks(database: Database, keep_seconds: float, limit: int) -> int:
    """Drop the oldest ticks of schedules."""
    return _forget(database, sql.OLD_TICKS, keep_seconds, limit)


def forget_source_events(database: Database, keep_seconds: float, limit: int) -> int:
    """Drop the oldest of what is on record of sources."""
    return _forget(database, sql.OLD_SOURCE_EVENTS, keep_seconds, limit)


def _forget(database: Database, statement: Statement, keep_seconds: float, limit: int) -> int:
    with database.transaction() as transaction:
        _plan_plainly(transaction)
        return len(transaction.rows(statement, {"keep": float(keep_seconds), "limit": limit}))


def forget_refusals(database: Database, keep_seconds: float, after: str | None, limit: int) -> tuple[int, str | None]:
    """Drop old refusals of jobs that have neither a row nor a history. Goes through the table page by page: how many
    went, and where the next page begins; None at the end."""
    with _read_plainly(database) as transaction:
        page = [row[0] for row in transaction.rows(sql.REFUSED_JOBS, {"after": after or _NIL, "limit": limit})]
    if not page:
        return 0, None
    with database.statement() as transaction:
        gone = transaction.rows(sql.FORGET_REFUSALS, {"ids": json.dumps(page), "keep": float(keep_seconds)})
    return len(gone), page[-1]


def watermark(database: Database) -> Watermark | None:
    with database.reading() as transaction:
        found = transaction.rows(sql.WATERMARK)
    return read_watermark(found[0][0]) if found else None


def read_watermark(value: str) -> Watermark:
    content = json.loads(value)
    through = rows.moment(content["through"])
    assert through is not None
    return Watermark(through, int(content["jobs"]), int(content["events"]))


def _named(group: Group) -> dict[str, Any]:
    assert group.keep_seconds is not None
    return {"queue": group.queue, "state": str(group.state), "keep": float(group.keep_seconds)}


def _plan_plainly(transaction: CursorTransaction) -> None:
    if transaction.dialect == POSTGRES:
        transaction.rows(sql.PLAIN_PLANS)


@contextmanager
def _read_plainly(database: Database) -> Iterator[CursorTransaction]:
    """On Postgres that takes a transaction; SQLite needs none, and would take its write lock for it."""
    with database.transaction() if database.dialect == POSTGRES else database.reading() as transaction:
        _plan_plainly(transaction)
        yield transaction
