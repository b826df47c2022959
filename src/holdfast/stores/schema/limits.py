"""Limits of queues and sources, what was done to them, and who is inside a source."""

from __future__ import annotations

from sqlalchemy import (
    Boolean,
    CheckConstraint,
    Column,
    Float,
    Index,
    Integer,
    PrimaryKeyConstraint,
    Table,
    Text,
    false,
    text,
    true,
)

from holdfast.stores.schema.base import metadata
from holdfast.stores.types import JobId, Json, Time, new_uuid7, store_now

queues = Table(
    "holdfast_queues",
    metadata,
    Column("name", Text, primary_key=True),
    Column("paused_at", Time),
    Column("max_running", Integer),
    Column("updated_at", Time, nullable=False, server_default=store_now()),
    CheckConstraint("max_running IS NULL OR max_running >= 0", name="holdfast_queues_limit"),
)

# NaN is above every number there, and infinity later than any time.
SOURCE_TIMES = ("paused_until", "last_success_at", "last_failure_at", "bucket_at", "created_at", "updated_at")
SOURCE_RULES = (
    (
        "times",
        " AND ".join(
            f"{column} >= '0001-01-02T00:00:00Z' AND {column} <= '9999-12-31T08:00:00Z'" for column in SOURCE_TIMES
        ),
    ),
    (
        "numbers",
        "rate_limit_per_minute <= 1000000000 AND burst <= 1000000 AND max_concurrent <= 1000000"
        " AND failure_streak >= 0 AND breaker_threshold >= 1 AND breaker_threshold <= 1000000"
        " AND breaker_pause_seconds > 0 AND breaker_pause_seconds <= 315360000"
        " AND bucket_level >= 0 AND bucket_level <= 1000000000",
    ),
    (
        "words",
        "name <> '' AND paused_by IN ('breaker', 'operator', 'retry_after')"
        " AND json_typeof(breaker_only) = 'array' AND json_typeof(breaker_ignores) = 'array'"
        " AND json_typeof(declared) = 'object'",
    ),
)

sources = Table(
    "holdfast_sources",
    metadata,
    Column("name", Text, primary_key=True),
    Column("enabled", Boolean, nullable=False, server_default=true()),
    Column("rate_limit_per_minute", Float),
    Column("burst", Integer, nullable=False, server_default=text("1")),
    Column("max_concurrent", Integer),
    Column("failure_streak", Integer, nullable=False, server_default=text("0")),
    Column("breaker_threshold", Integer, nullable=False, server_default=text("5")),
    Column("breaker_pause_seconds", Float, nullable=False, server_default=text("300")),
    Column("last_success_at", Time),
    Column("last_failure_at", Time),
    Column("paused_until", Time),
    Column("paused_by", Text),  # breaker, operator or retry_after
    # Which failures count for the breaker: only these error codes, or all but these; and whether permanent ones do.
    Column("breaker_only", Json),
    Column("breaker_ignores", Json),
    Column("breaker_counts_permanent", Boolean, nullable=False, server_default=true()),
    Column("declared", Json),  # what code said last; null: made by an operator
    # The token bucket: its level when it was last written, and when that was.
    Column("bucket_level", Float, nullable=False, server_default=text("1")),
    Column("bucket_at", Time, nullable=False, server_default=store_now()),
    Column("created_at", Time, nullable=False, server_default=store_now()),
    Column("updated_at", Time, nullable=False, server_default=store_now()),
    CheckConstraint("rate_limit_per_minute IS NULL OR rate_limit_per_minute > 0", name="holdfast_sources_rate"),
    CheckConstraint("max_concurrent IS NULL OR max_concurrent >= 0", name="holdfast_sources_limit"),
    CheckConstraint("burst >= 1", name="holdfast_sources_burst"),
    # One row of nonsense would stop the claims and the outcomes of all. On SQLite, where a table gets no new
    # constraints, guards say the same (`guards/sqlite_limits.py`).
    *(CheckConstraint(rule, name=f"holdfast_sources_{name}").ddl_if("postgresql") for name, rule in SOURCE_RULES),
)

source_events = Table(
    "holdfast_source_events",
    metadata,
    Column("id", JobId, primary_key=True, server_default=new_uuid7()),
    Column("source", Text, nullable=False),
    Column("at", Time, nullable=False, server_default=store_now()),
    Column("event", Text, nullable=False),
    Column("detail", Json),
    Index("holdfast_source_events_by_source", "source", "id"),
)

# Jobs inside `ctx.source(…)`. A row counts until it is left, and as long as that very attempt of its job is running:
# nothing has to be given back when a worker dies. `own`: the job was claimed under this source, and counts as that
# already.
source_holds = Table(
    "holdfast_source_holds",
    metadata,
    Column("job_id", JobId, nullable=False),
    Column("attempt", Integer, nullable=False),
    Column("number", Integer, nullable=False),  # counts the entries of one attempt
    Column("source", Text, nullable=False),
    Column("own", Boolean, nullable=False, server_default=false()),
    Column("at", Time, nullable=False, server_default=store_now()),
    Column("left_at", Time),  # it stays until the attempt is over, so that nobody enters by an old question
    PrimaryKeyConstraint("job_id", "attempt", "number", name="holdfast_source_holds_pkey"),
    sqlite_with_rowid=False,
)

Index(
    "holdfast_source_holds_by_source",
    source_holds.c.source,
    postgresql_where=text("left_at IS NULL"),
    sqlite_where=text("left_at IS NULL"),
)
