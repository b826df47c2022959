"""Write, read and delete records.

A batch is one transaction: its records first, then the lease, if there is one. So the job's row, which its heartbeat
wants, is locked for no longer than a commit takes, and nothing is waited for while it is. A lease that is lost takes
the records back with it.
"""

from __future__ import annotations

import json
import time
from collections.abc import Sequence
from dataclasses import dataclass, replace
from typing import Any

from holdfast.domain import digests
from holdfast.domain.answers import Beat, Verb
from holdfast.domain.errors import InvalidInput, LeaseLost, NotFound, StoreUnavailable
from holdfast.domain.names import MAX_NAME, check_id, check_integer, check_name, storable_text
from holdfast.domain.record import Kept, NewRecord, Record, Written, check_key, check_records
from holdfast.domain.spec import encode_json
from holdfast.domain.views import Page
from holdfast.stores import rows
from holdfast.stores.database import Database, Transaction
from holdfast.stores.ids import new_ids
from holdfast.stores.statements import records as sql
from holdfast.stores.verbs import lost
from holdfast.stores.verbs.querying import MAX_PAGE
from holdfast.stores.verbs.settling import BUSY_TRIES

PAGE_BYTES = 8 * 1024 * 1024
DELETED_AT_ONCE = 1_000

Key = tuple[str, str, str]  # scope, source, dedupe key


@dataclass(frozen=True, slots=True)
class Candidate:
    """The one record of a batch that counts for its key; `place` is its place in the batch."""

    place: int
    record: NewRecord
    data: str


@dataclass(frozen=True, slots=True)
class Lease:
    job_id: str
    attempt: int
    digest: str
    worker: str | None


class _NotHeld(Exception):
    """Takes the transaction back."""


def write(database: Database, new: Sequence[NewRecord], lease: Beat | None) -> list[Written]:
    checked = check_records(new)
    held = None if lease is None else _lease(database, lease)
    if not checked:
        return []
    chosen = _chosen(checked)
    written = _write(database, chosen, None) if held is None else _write_under(database, chosen, held)
    return [_answer(place, _key(record), chosen, written) for place, record in enumerate(new)]


def _chosen(checked: Sequence[tuple[NewRecord, str]]) -> dict[Key, Candidate]:
    """As if they had been written one after the other; a statement can touch a row only once."""
    chosen: dict[Key, Candidate] = {}
    for place, (record, data) in enumerate(checked):
        before = chosen.get(_key(record))
        if before is None:
            chosen[_key(record)] = Candidate(place, record, data)
        elif record.replace or record.strength > before.record.strength:
            replaces = record.replace or before.record.replace
            chosen[_key(record)] = Candidate(place, replace(record, replace=replaces), data)
    return chosen


def _key(record: NewRecord) -> Key:
    return record.scope, record.source, record.dedupe_key


def _answer(place: int, key: Key, chosen: dict[Key, Candidate], written: dict[Key, tuple[str, Kept]]) -> Written:
    record_id, kept = written[key]
    return Written(record_id, key[2], kept if chosen[key].place == place else Kept.EXISTING)


def _write_under(database: Database, chosen: dict[Key, Candidate], lease: Lease) -> dict[Key, tuple[str, Kept]]:
    for tried in range(BUSY_TRIES):
        try:
            return _write(database, chosen, lease)
        except _NotHeld:
            _check_held(database, lease)
        time.sleep(0.002 * 2**tried)
    raise StoreUnavailable(
        f"job {lease.job_id}: its records were not written, because another transaction has its row locked; try again"
    )


def _write(database: Database, chosen: dict[Key, Candidate], lease: Lease | None) -> dict[Key, tuple[str, Kept]]:
    ids = dict(zip(chosen, new_ids(len(chosen)), strict=True))
    parameters = {
        "rows": f"[{','.join(_encode(ids[key], candidate, lease) for key, candidate in chosen.items())}]",
        "replacing": json.dumps([ids[key] for key, candidate in chosen.items() if candidate.record.replace]),
    }
    with database.transaction() as transaction:
        changed = {_stored_key(row): str(row[0]) for row in transaction.rows(sql.WRITE, parameters)}
        kept = {key: (i, Kept.CREATED if i == ids[key] else Kept.REPLACED) for key, i in changed.items()}
        kept |= _existing(transaction, [key for key in chosen if key not in changed])
        if lease is not None and not _is_held(transaction, lease):
            raise _NotHeld
    return kept


def _encode(record_id: str, candidate: Candidate, lease: Lease | None) -> str:
    record = candidate.record
    row = {
        "id": record_id,
        "scope": record.scope,
        "source": record.source,
        "dedupe_key": record.dedupe_key,
        "external_id": record.external_id,
        "strength": record.strength,
        "job_id": None if lease is None else lease.job_id,
        "attempt": None if lease is None else lease.attempt,
    }
    return f'{encode_json(row)[:-1]},"data":{candidate.data}}}'


def _existing(transaction: Transaction, keys: Sequence[Key]) -> dict[Key, tuple[str, Kept]]:
    if not keys:
        return {}
    given = [dict(zip(sql.KEY, key, strict=True)) for key in keys]
    found = transaction.rows(sql.EXISTING, {"rows": encode_json(given)})
    return {_stored_key(row): (str(row[0]), Kept.EXISTING) for row in found}


def _stored_key(row: Sequence[Any]) -> Key:
    return row[1], row[2], row[3]


# the lease


def _lease(database: Database, beat: Beat) -> Lease:
    job_id = check_id(beat.job_id, "job_id")
    digest = digests.token_digest(beat.lease_token, beat.credential)
    if beat.by_token:
        with database.reading() as transaction:
            attempt = lost.look_into(transaction, [job_id]).attempt_of(job_id, digest)
    else:
        attempt = check_integer(beat.attempt, "attempt", 0, 2**31 - 1)
    worker = None if beat.worker is None else storable_text(beat.worker, MAX_NAME)
    return Lease(job_id, attempt, digest, worker)


def _is_held(transaction: Transaction, lease: Lease) -> bool:
    shown = {"job_id": lease.job_id, "attempt": lease.attempt, "digest": lease.digest}
    return bool(transaction.rows(sql.LEASE, shown))


def _check_held(database: Database, lease: Lease) -> None:
    """Locked for a moment is not lost. What is lost is on record."""
    with database.transaction() as transaction:
        known = lost.look_into(transaction, [lease.job_id])
        if known.holds(lease.job_id, lease.attempt, lease.digest):
            return
        reason = known.lease_reason(lease.job_id, lease.attempt, lease.digest)
        lost.record(transaction, [lost.Refused(lease.job_id, lease.attempt, Verb.RECORD, reason, lease.worker)])
    raise LeaseLost(
        f"job {lease.job_id}, attempt {lease.attempt}: its records were not written ({reason}), because the lease is no"
        " longer this attempt's; stop, the job is or will be run by somebody else"
    )


# reading and deleting


def listed(
    database: Database,
    scope: str | None,
    source: str | None,
    job_id: str | None,
    dedupe_key: str | None,
    limit: int,
    after: str | None,
) -> Page[Record]:
    check_integer(limit, "limit", 1, MAX_PAGE)
    if dedupe_key is not None and scope is None and job_id is None:
        raise InvalidInput("dedupe_key", "is a key within a scope: name the scope, too, or the job")
    wanted = {
        **_filters(scope, source, dedupe_key),
        "job_id": None if job_id is None else check_id(job_id, "job_id"),
        "after": None if after is None else check_id(after, "after"),
    }
    given = {name: value for name, value in wanted.items() if value is not None}
    # One more than asked for tells whether there is a next page.
    bounds = {"limit": limit + 1, "most_bytes": PAGE_BYTES}
    with database.reading() as transaction:
        found = transaction.rows(sql.list_records(tuple(given)), {**given, **bounds})
    items = tuple(_record(row[1:], database.dialect) for row in found[:limit])
    return Page(items, items[-1].id if items and found[0][0] > len(items) else None)


def one(database: Database, record_id: str) -> Record:
    record_id = check_id(record_id, "record_id")
    with database.reading() as transaction:
        found = transaction.rows(sql.ONE, {"id": record_id})
    if not found:
        raise NotFound(f"there is no record {record_id}")
    return _record(found[0], database.dialect)


def delete(database: Database, scope: str, source: str | None, dedupe_key: str | None) -> int:
    """A batch at a time, so that nobody waits long for it."""
    check_name(scope, "scope")
    named = _filters(scope, source, dedupe_key)
    parameters = {"scope": scope, "source": source, "key": named["dedupe_key"], "limit": DELETED_AT_ONCE}
    deleted = 0
    while True:
        with database.statement() as transaction:
            batch = len(transaction.rows(sql.DELETE, parameters))
        deleted += batch
        if batch == 0:
            return deleted


def _filters(scope: str | None, source: str | None, dedupe_key: str | None) -> dict[str, str | None]:
    """Under the source '' are the records of `upsert_single`."""
    return {
        "scope": None if scope is None else check_name(scope, "scope"),
        "source": source if source is None or source == "" else check_name(source, "source"),
        "dedupe_key": None if dedupe_key is None else check_key(dedupe_key),
    }


def _record(row: Sequence[Any], dialect: str) -> Record:
    return Record(**rows.decoded(sql.COLUMNS, row, dialect))
