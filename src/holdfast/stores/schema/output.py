"""What jobs leave behind: records, log lines, files; and what outside systems told them."""

from __future__ import annotations

from sqlalchemy import BigInteger, Column, Float, Index, Integer, PrimaryKeyConstraint, Table, Text, text

from holdfast.stores.schema.base import metadata
from holdfast.stores.types import JobId, Json, Time, new_uuid7, store_now

# The deduplicated output of jobs. It outlives them: `job_id` and `attempt` tell who wrote what is there now.
records = Table(
    "holdfast_records",
    metadata,
    Column("id", JobId, primary_key=True, server_default=new_uuid7()),
    Column("scope", Text, nullable=False),
    Column("source", Text, nullable=False, server_default=""),
    Column("dedupe_key", Text, nullable=False),
    Column("external_id", Text),
    Column("strength", Float, nullable=False, server_default=text("0")),
    Column("data", Json, nullable=False),
    Column("job_id", JobId),  # null: written outside any job
    Column("attempt", Integer),
    Column("created_at", Time, nullable=False, server_default=store_now()),
    Column("updated_at", Time, nullable=False, server_default=store_now()),
    Index("holdfast_records_key", "scope", "source", "dedupe_key", unique=True),
    Index("holdfast_records_by_scope", "scope", "id"),
    Index("holdfast_records_by_source", "source", "id"),
)
Index(
    "holdfast_records_by_job",
    records.c.job_id,
    postgresql_where=text("job_id IS NOT NULL"),
    sqlite_where=text("job_id IS NOT NULL"),
)

# What outside systems answered, kept for a while.
cache = Table(
    "holdfast_cache",
    metadata,
    Column("source", Text, nullable=False),
    Column("key", Text, nullable=False),
    Column("value", Json, nullable=False),
    Column("stored_at", Time, nullable=False, server_default=store_now()),
    Column("expires_at", Time, nullable=False),
    PrimaryKeyConstraint("source", "key", name="holdfast_cache_pkey"),
    Index("holdfast_cache_expires", "expires_at"),
)

# What jobs said. The number counts the lines of one attempt, so that a line which is sent twice is stored once.
logs = Table(
    "holdfast_logs",
    metadata,
    Column("job_id", JobId, nullable=False),
    Column("attempt", Integer, nullable=False),
    Column("number", Integer, nullable=False),
    Column("at", Time, nullable=False),
    Column("stream", Text, nullable=False),
    Column("level", Text),
    Column("message", Text, nullable=False),
    Column("fields", Json),
    PrimaryKeyConstraint("job_id", "attempt", "number", name="holdfast_logs_pkey"),
    postgresql_with={"autovacuum_vacuum_insert_scale_factor": "0.05"},
    sqlite_with_rowid=False,
)

# Files that attempts saved and reported. The row is written with the report, after the file: a file without a row is
# one that nobody knows of, and retention collects it.
artifacts = Table(
    "holdfast_artifacts",
    metadata,
    Column("job_id", JobId, nullable=False),
    Column("attempt", Integer, nullable=False),
    Column("name", Text, nullable=False),
    Column("media_type", Text, nullable=False),
    Column("bytes", BigInteger, nullable=False),
    Column("sha256", Text, nullable=False),
    Column("saved_at", Time, nullable=False, server_default=store_now()),
    PrimaryKeyConstraint("job_id", "attempt", "name", name="holdfast_artifacts_pkey"),
    sqlite_with_rowid=False,
)
