"""Workers for people to look at, what jobs said, and the whole of what a task announces about itself."""

from __future__ import annotations

import sqlalchemy as sa
from alembic import op

from holdfast.domain.errors import ConfigurationError
from holdfast.stores.types import JobId, Json, Time, store_now

revision = "0002"
down_revision = "0001"


def upgrade() -> None:
    # Plain ADD COLUMN on both dialects: to replace a table on SQLite loses its indexes over expressions.
    op.add_column("holdfast_tasks", sa.Column("kind", sa.Text, nullable=False, server_default="sync"))
    op.add_column("holdfast_tasks", sa.Column("on_lost_lease", sa.Text, nullable=False, server_default="kill"))
    create_workers()
    create_logs()


def downgrade() -> None:
    raise ConfigurationError(
        "Holdfast never downgrades its tables: restore a backup from before the upgrade, or keep the newer package."
    )


def create_workers() -> None:
    op.create_table(
        "holdfast_workers",
        sa.Column("id", sa.Text, primary_key=True),
        sa.Column("host", sa.Text, nullable=False),
        sa.Column("pid", sa.Integer, nullable=False),
        sa.Column("state", sa.Text, nullable=False),
        sa.Column("app", sa.Text),
        sa.Column("queues", Json),
        sa.Column("processes", sa.Integer, nullable=False),
        sa.Column("slots", sa.Integer, nullable=False),
        sa.Column("running", sa.Integer, nullable=False),
        sa.Column("version", sa.Text),
        sa.Column("detail", Json),
        sa.Column("started_at", Time, nullable=False, server_default=store_now()),
        sa.Column("beat_at", Time, nullable=False, server_default=store_now()),
        sa.Column("stopped_at", Time),
    )


def create_logs() -> None:
    op.create_table(
        "holdfast_logs",
        sa.Column("job_id", JobId, nullable=False),
        sa.Column("attempt", sa.Integer, nullable=False),
        sa.Column("number", sa.Integer, nullable=False),
        sa.Column("at", Time, nullable=False),
        sa.Column("stream", sa.Text, nullable=False),
        sa.Column("level", sa.Text),
        sa.Column("message", sa.Text, nullable=False),
        sa.Column("fields", Json),
        sa.PrimaryKeyConstraint("job_id", "attempt", "number", name="holdfast_logs_pkey"),
        postgresql_with={"autovacuum_vacuum_insert_scale_factor": "0.05"},
        sqlite_with_rowid=False,
    )
