"""Records, the cache, who is inside a source, and what a breaker goes by; the replays of a job."""

from __future__ import annotations

import sqlalchemy as sa
from alembic import op

from holdfast.domain.errors import ConfigurationError
from holdfast.stores.migrations import ahead
from holdfast.stores.types import JobId, Json, Time, new_uuid7, store_now

revision = "0005"
down_revision = "0004"


def upgrade() -> None:
    create_index()
    add_source_columns()
    create_source_holds()
    create_records()
    create_cache()


def downgrade() -> None:
    raise ConfigurationError(
        "Holdfast never downgrades its tables: restore a backup from before the upgrade, or keep the newer package."
    )


def create_index() -> None:
    connection = op.get_bind()
    if connection.dialect.name == "postgresql":
        ahead.create(connection, revision)
    else:
        replays = sa.text("replay_of IS NOT NULL")
        op.create_index("holdfast_jobs_replays", "holdfast_jobs", ["replay_of"], sqlite_where=replays)


def add_source_columns() -> None:
    for column in (
        sa.Column("paused_by", sa.Text),
        sa.Column("breaker_only", Json),
        sa.Column("breaker_ignores", Json),
        sa.Column("breaker_counts_permanent", sa.Boolean, nullable=False, server_default=sa.true()),
        sa.Column("declared", Json),
    ):
        op.add_column("holdfast_sources", column)


def create_source_holds() -> None:
    op.create_table(
        "holdfast_source_holds",
        sa.Column("job_id", JobId, nullable=False),
        sa.Column("attempt", sa.Integer, nullable=False),
        sa.Column("number", sa.Integer, nullable=False),
        sa.Column("source", sa.Text, nullable=False),
        sa.Column("own", sa.Boolean, nullable=False, server_default=sa.false()),
        sa.Column("at", Time, nullable=False, server_default=store_now()),
        sa.PrimaryKeyConstraint("job_id", "attempt", "number", name="holdfast_source_holds_pkey"),
        sqlite_with_rowid=False,
    )
    op.create_index("holdfast_source_holds_by_source", "holdfast_source_holds", ["source"])


def create_records() -> None:
    op.create_table(
        "holdfast_records",
        sa.Column("id", JobId, primary_key=True, server_default=new_uuid7()),
        sa.Column("scope", sa.Text, nullable=False),
        sa.Column("source", sa.Text, nullable=False, server_default=""),
        sa.Column("dedupe_key", sa.Text, nullable=False),
        sa.Column("external_id", sa.Text),
        sa.Column("strength", sa.Float, nullable=False, server_default=sa.text("0")),
        sa.Column("data", Json, nullable=False),
        sa.Column("job_id", JobId),
        sa.Column("attempt", sa.Integer),
        sa.Column("created_at", Time, nullable=False, server_default=store_now()),
        sa.Column("updated_at", Time, nullable=False, server_default=store_now()),
    )
    op.create_index("holdfast_records_key", "holdfast_records", ["scope", "source", "dedupe_key"], unique=True)
    op.create_index("holdfast_records_by_scope", "holdfast_records", ["scope", "id"])
    op.create_index("holdfast_records_by_source", "holdfast_records", ["source", "id"])
    of_jobs = sa.text("job_id IS NOT NULL")
    op.create_index(
        "holdfast_records_by_job", "holdfast_records", ["job_id"], postgresql_where=of_jobs, sqlite_where=of_jobs
    )


def create_cache() -> None:
    op.create_table(
        "holdfast_cache",
        sa.Column("source", sa.Text, nullable=False),
        sa.Column("key", sa.Text, nullable=False),
        sa.Column("value", Json, nullable=False),
        sa.Column("stored_at", Time, nullable=False, server_default=store_now()),
        sa.Column("expires_at", Time, nullable=False),
        sa.PrimaryKeyConstraint("source", "key", name="holdfast_cache_pkey"),
    )
    op.create_index("holdfast_cache_expires", "holdfast_cache", ["expires_at"])
