"""What is on record of jobs: every transition, and every report that was refused."""

from __future__ import annotations

from sqlalchemy import Column, Index, Integer, PrimaryKeyConstraint, Table, Text, literal_column, text

from holdfast.domain.lifecycle import Event
from holdfast.stores.schema.base import metadata
from holdfast.stores.types import JobId, Json, Time, store_now

events = Table(
    "holdfast_events",
    metadata,
    Column("job_id", JobId, nullable=False),
    Column("seq", Integer, nullable=False),
    Column("at", Time, nullable=False),
    Column("event", Text, nullable=False),
    Column("from_state", Text),
    Column("to_state", Text),
    Column("attempt", Integer, nullable=False),
    Column("worker", Text),
    Column("lease", Text),
    Column("detail", Json),
    PrimaryKeyConstraint("job_id", "seq", name="holdfast_events_pkey"),
    postgresql_with={"autovacuum_vacuum_insert_scale_factor": "0.05"},
    sqlite_with_rowid=False,
)

# What a `pruned` row says of its job; older ones say nothing and count as queue ''.
PRUNED_QUEUE_POSTGRES = "coalesce(detail ->> 'queue', '')"
PRUNED_QUEUE_SQLITE = "coalesce(json_extract(detail, '$.queue'), '')"


def _pruned_index(dialect: str, queue: str) -> Index:
    index = Index(
        "holdfast_events_pruned",
        literal_column(queue),
        events.c.from_state,
        events.c.at,
        events.c.job_id,
        postgresql_where=text("event = 'pruned'"),
        sqlite_where=text("event = 'pruned'"),
    )
    return index.ddl_if(dialect)


# Only pruning pays for it: retention finds the histories that are old enough to go.
_pruned_index("postgresql", f"({PRUNED_QUEUE_POSTGRES})")
_pruned_index("sqlite", PRUNED_QUEUE_SQLITE)

# By time, for whoever follows the log as it grows. Rows come in that order, so that on Postgres a summary of each block
# range will do, and an insert costs next to nothing; SQLite has no such index, and appends to an ordinary one.
Index(
    "holdfast_events_at",
    events.c.at,
    postgresql_using="brin",
    postgresql_with={"pages_per_range": 16, "autosummarize": "on"},
).ddl_if("postgresql")
Index("holdfast_events_at", events.c.at).ddl_if("sqlite")

# What seldom happens and is looked for all the more. Most jobs never pay for it.
SELDOM = (
    Event.RETRY_SCHEDULED,
    Event.CRASHED,
    Event.LEASE_LOST,
    Event.FAILED,
    Event.RELEASED,
    Event.CANCEL_REQUESTED,
    Event.CANCELLED,
    Event.REQUEUED,
)
SELDOM_SQL = f"event IN ({', '.join(repr(str(event)) for event in SELDOM)})"
Index(
    "holdfast_events_seldom",
    *(events.c.event, events.c.at, events.c.job_id, events.c.seq),
    postgresql_where=text(SELDOM_SQL),
    sqlite_where=text(SELDOM_SQL),
)

# Retention's door: a job id inserted here takes that job's whole history away. Nothing else can delete from the audit
# log, so no history can ever lose only a part. The row stays, so that the id is refused when a client gives it again.
# Of the UUIDv7s only the newest stay (`retaining.MAX_RETIRED_IDS`): an older one is refused by its age alone.
retired = Table(
    "holdfast_retired_histories",
    metadata,
    Column("job_id", JobId, primary_key=True),
)

refusals = Table(
    "holdfast_refusals",
    metadata,
    Column("job_id", JobId, nullable=False),
    Column("attempt", Integer, nullable=False),
    Column("verb", Text, nullable=False),
    Column("reason", Text, nullable=False),
    Column("worker", Text, nullable=False, server_default=""),
    Column("first_at", Time, nullable=False, server_default=store_now()),
    Column("last_at", Time, nullable=False, server_default=store_now()),
    Column("count", Integer, nullable=False, server_default=text("1")),
    PrimaryKeyConstraint("job_id", "attempt", "verb", "reason", "worker", name="holdfast_refusals_pkey"),
)
