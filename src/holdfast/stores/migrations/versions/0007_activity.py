"""Activity by the minute, what a duty remembers, and indexes for whoever looks for a few rows among millions."""

from __future__ import annotations

import sqlalchemy as sa
from alembic import op

from holdfast.domain.errors import ConfigurationError
from holdfast.stores.migrations import ahead
from holdfast.stores.types import Json, Time

revision = "0007"
down_revision = "0006"

COUNTS = (
    *("enqueued", "started", "succeeded", "failed", "retried", "lost", "cancelled", "snoozed", "released"),
    *("cache_hits", "cache_misses"),
)
ENDED = "state IN ('succeeded', 'failed', 'cancelled')"
SELDOM = (
    "event IN ('retry_scheduled', 'crashed', 'lease_lost', 'failed',"
    " 'released', 'cancel_requested', 'cancelled', 'requeued')"
)


def upgrade() -> None:
    create_indexes()
    op.add_column("holdfast_duties", sa.Column("detail", Json))
    create_minutes()


def downgrade() -> None:
    raise ConfigurationError(
        "Holdfast never downgrades its tables: restore a backup from before the upgrade, or keep the newer package."
    )


def create_indexes() -> None:
    connection = op.get_bind()
    if connection.dialect.name == "postgresql":
        ahead.create(connection, revision)
        return
    for column, where in (("task", ENDED), ("source", f"source IS NOT NULL AND {ENDED}")):
        op.create_index(f"holdfast_jobs_{column}_ended", "holdfast_jobs", [column, "id"], sqlite_where=sa.text(where))
    where = "spec_hash IS NOT NULL AND state IN ('failed', 'cancelled')"
    op.create_index("holdfast_jobs_spec_ended", "holdfast_jobs", ["spec_hash"], sqlite_where=sa.text(where))
    op.create_index("holdfast_jobs_retryable", "holdfast_jobs", ["id"], sqlite_where=sa.text("state = 'retryable'"))
    columns = ["event", "at", "job_id", "seq"]
    op.create_index("holdfast_events_seldom", "holdfast_events", columns, sqlite_where=sa.text(SELDOM))


def create_minutes() -> None:
    op.create_table(
        "holdfast_minutes",
        sa.Column("kind", sa.Text, nullable=False),
        sa.Column("name", sa.Text, nullable=False),
        sa.Column("minute", Time, nullable=False),
        *(sa.Column(name, sa.Integer, nullable=False, server_default=sa.text("0")) for name in COUNTS),
        sa.Column("ready", sa.Integer),
        sa.Column("scheduled", sa.Integer),
        sa.Column("running", sa.Integer),
        sa.Column("oldest_seconds", sa.Float),
        sa.Column("wait", Json),
        sa.Column("run", Json),
        sa.PrimaryKeyConstraint("kind", "name", "minute", name="holdfast_minutes_pkey"),
        sa.CheckConstraint("kind IN ('all', 'queue', 'task', 'source')", name="holdfast_minutes_kind"),
    )
    op.create_index("holdfast_minutes_minute", "holdfast_minutes", ["minute"])
