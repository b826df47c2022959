"""Schedules and their ticks, rules of retention, artifacts, and the two indexes that retention walks.

On Postgres `ahead.py` has built the two indexes before this runs, while everybody went on working.
"""

from __future__ import annotations

import sqlalchemy as sa
from alembic import op

from holdfast.domain.errors import ConfigurationError
from holdfast.stores.migrations import ahead
from holdfast.stores.types import JobId, Json, Time, store_now

revision = "0003"
down_revision = "0002"

_TERMINAL = "state IN ('succeeded', 'failed', 'cancelled')"


def upgrade() -> None:
    create_indexes()
    create_artifacts()
    create_schedules()
    create_retention()


def downgrade() -> None:
    raise ConfigurationError(
        "Holdfast never downgrades its tables: restore a backup from before the upgrade, or keep the newer package."
    )


def create_indexes() -> None:
    connection = op.get_bind()
    if connection.dialect.name == "postgresql":
        ahead.create(connection, revision)
        return
    op.execute(f"CREATE INDEX holdfast_jobs_finished ON holdfast_jobs (queue, state, finished_at) WHERE {_TERMINAL}")
    op.execute(
        "CREATE INDEX holdfast_events_pruned ON holdfast_events"
        " (coalesce(json_extract(detail, '$.queue'), ''), from_state, at, job_id) WHERE event = 'pruned'"
    )


def create_artifacts() -> None:
    op.create_table(
        "holdfast_artifacts",
        sa.Column("job_id", JobId, nullable=False),
        sa.Column("attempt", sa.Integer, nullable=False),
        sa.Column("name", sa.Text, nullable=False),
        sa.Column("media_type", sa.Text, nullable=False),
        sa.Column("bytes", sa.BigInteger, nullable=False),
        sa.Column("sha256", sa.Text, nullable=False),
        sa.Column("saved_at", Time, nullable=False, server_default=store_now()),
        sa.PrimaryKeyConstraint("job_id", "attempt", "name", name="holdfast_artifacts_pkey"),
        sqlite_with_rowid=False,
    )


def create_schedules() -> None:
    op.create_table(
        "holdfast_schedules",
        sa.Column("name", sa.Text, primary_key=True),
        sa.Column("task", sa.Text, nullable=False),
        sa.Column("job", Json, nullable=False, server_default=sa.text("'{}'")),
        sa.Column("cron", sa.Text),
        sa.Column("every_seconds", sa.Float),
        sa.Column("anchor_at", Time, nullable=False, server_default=store_now()),
        sa.Column("timezone", sa.Text, nullable=False, server_default="UTC"),
        sa.Column("misfire", sa.Text, nullable=False, server_default="once"),
        sa.Column("misfire_limit", sa.Integer, nullable=False, server_default=sa.text("1")),
        sa.Column("misfire_grace_seconds", sa.Float, nullable=False, server_default=sa.text("60")),
        sa.Column("tick_argument", sa.Text),
        sa.Column("declared", Json),
        sa.Column("declared_at", Time),
        sa.Column("overrides", Json, nullable=False, server_default=sa.text("'{}'")),
        sa.Column("paused_at", Time),
        sa.Column("next_at", Time),
        sa.Column("last_at", Time),
        sa.Column("revision", sa.Integer, nullable=False, server_default=sa.text("1")),
        sa.Column("created_at", Time, nullable=False, server_default=store_now()),
        sa.Column("updated_at", Time, nullable=False, server_default=store_now()),
        sa.CheckConstraint("(cron IS NULL) <> (every_seconds IS NULL)", name="holdfast_schedules_kind"),
        sa.CheckConstraint("every_seconds IS NULL OR every_seconds >= 1", name="holdfast_schedules_interval"),
        sa.CheckConstraint(
            "misfire IN ('skip', 'once', 'all') AND misfire_limit >= 1", name="holdfast_schedules_misfire"
        ),
    )
    op.create_table(
        "holdfast_schedule_ticks",
        sa.Column("schedule", sa.Text, nullable=False),
        sa.Column("planned_at", Time, nullable=False),
        sa.Column("fired_at", Time, nullable=False, server_default=store_now()),
        sa.Column("outcome", sa.Text, nullable=False),
        sa.Column("job_id", JobId),
        sa.Column("holder", sa.Text),
        sa.Column("detail", Json),
        sa.PrimaryKeyConstraint("schedule", "planned_at", name="holdfast_schedule_ticks_pkey"),
    )
    op.create_index("holdfast_schedule_ticks_fired", "holdfast_schedule_ticks", ["fired_at"])


def create_retention() -> None:
    op.create_table(
        "holdfast_retention",
        sa.Column("what", sa.Text, nullable=False),
        sa.Column("queue", sa.Text, nullable=False, server_default="*"),
        sa.Column("state", sa.Text, nullable=False),
        sa.Column("keep_seconds", sa.Float),
        sa.Column("updated_at", Time, nullable=False, server_default=store_now()),
        sa.PrimaryKeyConstraint("what", "queue", "state", name="holdfast_retention_pkey"),
        sa.CheckConstraint(
            f"what IN ('jobs', 'histories') AND {_TERMINAL} AND (keep_seconds IS NULL OR keep_seconds >= 0)",
            name="holdfast_retention_rule",
        ),
    )
