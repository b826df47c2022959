"""Records: written in one statement whatever their number, read page by page.

A batch waits for the rows that another batch is writing, and holds its own meanwhile. That cannot go in a circle: every
statement here that locks several rows takes them in the same order, that of (scope, source, key), which no row ever
changes, and takes no other lock before.
"""

from __future__ import annotations

from dataclasses import fields
from functools import cache

from holdfast.domain.lifecycle import State
from holdfast.domain.record import Record
from holdfast.stores.schema import still_in
from holdfast.stores.statements.batches import delete_batch
from holdfast.stores.statements.words import Statement, Words

COLUMNS = tuple(item.name for item in fields(Record))
KEY = ("scope", "source", "dedupe_key")
_GIVEN = {
    "id": "uuid",
    "scope": "text",
    "source": "text",
    "dedupe_key": "text",
    "external_id": "text",
    "strength": "float8",
    "data": "json",
    "job_id": "uuid",
    "attempt": "integer",
}
_REPLACED = ("external_id", "strength", "data", "job_id", "attempt")
_IDS = ("id", "job_id")


def _in_order(alias: str) -> str:
    """As the index of keys has them: whoever deletes a million walks along it."""
    return ", ".join(f"{alias}.{name}" for name in KEY)


def _write(words: Words) -> str:
    """What was created or replaced; a row that is new has the id that was given. On Postgres the rows that stay as they
    are get locked, too: what is read of them next is still there."""
    names = ", ".join(_GIVEN)
    null = "CAST('null' AS json)" if words.postgres else "'null'"
    values = ", ".join(f"coalesce(r.data, {null})" if name == "data" else f"r.{name}" for name in _GIVEN)
    changes = ", ".join(f"{name} = excluded.{name}" for name in _REPLACED)
    later = "greatest" if words.postgres else "max"
    prefix = "h." if words.postgres else ""
    returned = ", ".join([words.as_text(f"{prefix}id"), *(f"{prefix}{name}" for name in KEY)])
    return f"""
        INSERT INTO holdfast_records AS h ({names}, created_at, updated_at)
        SELECT {values}, {words.now}, {words.now} FROM {words.rows(_GIVEN)} {words.true_filter}
        ORDER BY {_in_order("r")}
        ON CONFLICT ({", ".join(KEY)})
        DO UPDATE SET {changes}, updated_at = {later}(excluded.updated_at, h.updated_at)
        WHERE excluded.strength > h.strength OR excluded.id IN {_listed_ids(words)}
        RETURNING {returned}"""


def _listed_ids(words: Words) -> str:
    """The ids of those that replace what is there whatever its strength; looked up once for the whole statement."""
    if words.postgres:
        return "(SELECT CAST(value AS uuid) FROM json_array_elements_text(CAST(:replacing AS json)))"
    return "(SELECT value FROM json_each(:replacing))"


def _existing(words: Words) -> str:
    matched = " AND ".join(f"h.{name} = r.{name}" for name in KEY)
    columns = ", ".join([words.as_text("h.id"), *(f"h.{name}" for name in KEY)])
    rows = words.rows(dict.fromkeys(KEY, "text"))
    return f"SELECT {columns} FROM {rows} JOIN holdfast_records h ON {matched}"


def _lease(words: Words) -> str:
    """The job's row if this lease is its own. The lock keeps the lease from ending before this transaction does: its
    own heartbeat, a report and the reaper pass a locked row over. A row that one of these has is not waited for."""
    job = words.id("job_id")
    return f"""
        SELECT j.attempt FROM holdfast_jobs j
        WHERE j.id = {job} AND {still_in(State.RUNNING)} AND j.attempt = :attempt AND j.lease_token = :digest
        {"FOR SHARE OF j SKIP LOCKED" if words.postgres else ""}"""


def _column(words: Words, name: str) -> str:
    return words.as_text(f"h.{name}") if name in _IDS else f"h.{name}"


def _columns(words: Words) -> str:
    return ", ".join(_column(words, name) for name in COLUMNS)


def _equals(words: Words, name: str) -> str:
    return f"h.{name} = CAST(:{name} AS uuid)" if words.postgres and name in _IDS else f"h.{name} = :{name}"


def _where(words: Words, filters: tuple[str, ...]) -> str:
    after = "h.id < CAST(:after AS uuid)" if words.postgres else "h.id < :after"
    return " AND ".join(after if name == "after" else _equals(words, name) for name in filters) or "true"


@cache
def list_records(filters: tuple[str, ...]) -> Statement:
    """Newest first, continued before the id `after`; a page also ends once it has so many bytes of data. Before the
    columns stands how many there would be without that. Those of one job are found by its index and then sorted: a walk
    along the ids could read the whole table for the few."""

    def build(words: Words) -> str:
        size = "octet_length(CAST(h.data AS text))" if words.postgres else "length(CAST(h.data AS blob))"
        source = "holdfast_records"
        if "job_id" in filters:
            source = f"(SELECT * FROM holdfast_records h WHERE {_equals(words, 'job_id')} {_fence(words)})"
        outer = ", ".join(_column(words, name) for name in COLUMNS)
        return f"""
            SELECT h.available, {outer} FROM (
              SELECT h.*, count(*) OVER () AS available,
                     sum({size}) OVER (ORDER BY h.id DESC) - {size} AS bytes_before
              FROM (SELECT * FROM {source} h WHERE {_where(words, filters)} ORDER BY h.id DESC LIMIT :limit) h) h
            WHERE h.bytes_before < :most_bytes ORDER BY h.id DESC"""

    return Statement(f"records.list.{'.'.join(filters)}", build, replan=True)


def _fence(words: Words) -> str:
    """Neither planner moves conditions or an order past it."""
    return "OFFSET 0" if words.postgres else "LIMIT -1 OFFSET 0"


def _one(words: Words) -> str:
    return f"SELECT {_columns(words)} FROM holdfast_records h WHERE {_equals(words, 'id')}"


def _delete(words: Words) -> str:
    """A batch of a scope, in the order in which they are locked."""
    source, key = ("CAST(:source AS text)", "CAST(:key AS text)") if words.postgres else (":source", ":key")
    chosen = f"""
          SELECT h.id FROM holdfast_records h
          WHERE h.scope = :scope AND ({source} IS NULL OR h.source = {source})
            AND ({key} IS NULL OR h.dedupe_key = {key})
          ORDER BY {_in_order("h")} LIMIT :limit {"FOR UPDATE OF h" if words.postgres else ""}"""
    return delete_batch("holdfast_records", "id", chosen)


WRITE = Statement("records.write", _write)
EXISTING = Statement("records.existing", _existing, replan=True)
LEASE = Statement("records.lease", _lease)
ONE = Statement("records.one", _one)
DELETE = Statement("records.delete", _delete, replan=True)
