"""The ledger: jobs, their audit log, and what governs them."""

from __future__ import annotations

import sqlalchemy as sa
from alembic import op

from holdfast.domain.errors import ConfigurationError
from holdfast.stores.types import JobId, Json, Time, new_uuid7, store_now

revision = "0001"
down_revision = None

# The column defaults below call these on Postgres. The guards replace them with their own latest text.
POSTGRES_FUNCTIONS = (
    """
CREATE OR REPLACE FUNCTION holdfast_now() RETURNS timestamptz LANGUAGE sql VOLATILE AS $$
SELECT clock_timestamp()$$""",
    """
CREATE OR REPLACE FUNCTION holdfast_uuid7() RETURNS uuid LANGUAGE sql VOLATILE AS $$
SELECT encode(set_bit(set_bit(overlay(uuid_send(gen_random_uuid()) placing
substring(int8send((extract(epoch from clock_timestamp()) * 1000)::bigint) from 3) from 1 for 6),
52, 1), 53, 1), 'hex')::uuid$$""",
)


def upgrade() -> None:
    if op.get_context().dialect.name == "postgresql":
        for function in POSTGRES_FUNCTIONS:
            op.get_bind().exec_driver_sql(function)
    create_jobs()
    create_job_indexes()
    create_histories()
    create_queues_and_sources()
    create_bookkeeping()


def downgrade() -> None:
    raise ConfigurationError(
        "Holdfast never downgrades its tables: restore a backup from before the upgrade, or keep the newer package."
    )


def create_jobs() -> None:
    op.create_table(
        "holdfast_jobs",
        sa.Column("id", JobId, primary_key=True, server_default=new_uuid7()),
        sa.Column("task", sa.Text, nullable=False),
        sa.Column("task_version", sa.Text),
        sa.Column("queue", sa.Text, nullable=False, server_default="default"),
        sa.Column("state", sa.Text, nullable=False, server_default="pending"),
        sa.Column("priority", sa.SmallInteger, nullable=False, server_default=sa.text("0")),
        sa.Column("run_after", Time, nullable=False, server_default=store_now()),
        sa.Column("payload", Json, nullable=False, server_default=sa.text("'{}'")),
        sa.Column("spec_hash", sa.Text),
        sa.Column("unique_key", sa.Text),
        sa.Column("source", sa.Text),
        sa.Column("attempt", sa.Integer, nullable=False, server_default=sa.text("0")),
        sa.Column("failures", sa.Integer, nullable=False, server_default=sa.text("0")),
        sa.Column("crashes", sa.Integer, nullable=False, server_default=sa.text("0")),
        sa.Column("max_attempts", sa.Integer, nullable=False, server_default=sa.text("3")),
        sa.Column("max_crashes", sa.Integer, nullable=False, server_default=sa.text("3")),
        sa.Column("retry", Json),
        sa.Column("timeout_seconds", sa.Float),
        sa.Column("lease_seconds", sa.Float, nullable=False, server_default=sa.text("60")),
        sa.Column("lease_owner", sa.Text),
        sa.Column("lease_token", sa.Text),
        sa.Column("lease_expires_at", Time),
        sa.Column("claimed_at", Time),
        sa.Column("heartbeat_at", Time),
        sa.Column("cancel_requested_at", Time),
        sa.Column("progress", Json),
        sa.Column("result", Json),
        sa.Column("result_ref", sa.Text),
        sa.Column("last_error", Json),
        sa.Column("traceparent", sa.Text),
        sa.Column("replay_of", JobId),
        sa.Column("seq", sa.Integer, nullable=False, server_default=sa.text("1")),
        sa.Column("transition", sa.Text, nullable=False, server_default="enqueued"),
        sa.Column("transition_detail", Json),
        sa.Column("created_at", Time, nullable=False, server_default=store_now()),
        sa.Column("updated_at", Time, nullable=False, server_default=store_now()),
        sa.Column("started_at", Time),
        sa.Column("finished_at", Time),
        sa.CheckConstraint(
            "state IN ('pending', 'running', 'retryable', 'succeeded', 'failed', 'cancelled')",
            name="holdfast_jobs_state",
        ),
        sa.CheckConstraint(
            "(state = 'running') = (lease_token IS NOT NULL) AND (state = 'running') = (lease_expires_at IS NOT NULL)"
            " AND (state = 'running') = (lease_owner IS NOT NULL)",
            name="holdfast_jobs_running_has_lease",
        ),
        sa.CheckConstraint(
            "(state IN ('succeeded', 'failed', 'cancelled')) = (finished_at IS NOT NULL)",
            name="holdfast_jobs_finished",
        ),
        sa.CheckConstraint("priority BETWEEN -100 AND 100", name="holdfast_jobs_priority"),
        sa.CheckConstraint("task <> '' AND queue <> ''", name="holdfast_jobs_names"),
        sa.CheckConstraint(
            "max_attempts >= 1 AND max_crashes >= 1 AND lease_seconds > 0 AND lease_seconds <= 315360000",
            name="holdfast_jobs_budgets",
        ),
        sa.CheckConstraint("timeout_seconds > 0 AND timeout_seconds <= 315360000", name="holdfast_jobs_timeout"),
        sa.CheckConstraint(
            "run_after >= '0001-01-01T00:00:00.000000Z' AND run_after <= '9999-12-31T23:59:59.999999Z'"
            " AND coalesce(cancel_requested_at, run_after) <= '9999-12-31T23:59:59.999999Z'",
            name="holdfast_jobs_times",
        ),
        postgresql_with={
            "fillfactor": "80",
            "autovacuum_vacuum_scale_factor": "0.02",
            "autovacuum_vacuum_cost_delay": "0",
            "autovacuum_analyze_scale_factor": "0.05",
        },
    )


def create_job_indexes() -> None:
    create_job_index(
        "ready",
        "queue",
        sa.text("priority DESC"),
        "task",
        sa.text("coalesce(source, '')"),
        "run_after",
        "id",
        where="state IN ('pending', 'retryable')",
    )
    create_job_index("running", "queue", "id", where="state = 'running'")
    create_job_index("source_running", "source", where="state = 'running' AND source IS NOT NULL")
    create_job_index(
        "source_ready",
        "source",
        "queue",
        "run_after",
        where="source IS NOT NULL AND state IN ('pending', 'retryable')",
    )
    create_job_index(
        "unique",
        "task",
        "unique_key",
        where="unique_key IS NOT NULL AND state IN ('pending', 'running', 'retryable')",
        unique=True,
    )
    create_job_index("reuse", "spec_hash", "finished_at", where="state = 'succeeded' AND spec_hash IS NOT NULL")
    create_job_index("dead", "id", where="state = 'failed'")


def create_job_index(name: str, *columns: str | sa.TextClause, where: str, unique: bool = False) -> None:
    op.create_index(
        f"holdfast_jobs_{name}",
        "holdfast_jobs",
        list(columns),
        unique=unique,
        postgresql_where=sa.text(where),
        sqlite_where=sa.text(where),
    )


def create_histories() -> None:
    op.create_table(
        "holdfast_events",
        sa.Column("job_id", JobId, nullable=False),
        sa.Column("seq", sa.Integer, nullable=False),
        sa.Column("at", Time, nullable=False),
        sa.Column("event", sa.Text, nullable=False),
        sa.Column("from_state", sa.Text),
        sa.Column("to_state", sa.Text),
        sa.Column("attempt", sa.Integer, nullable=False),
        sa.Column("worker", sa.Text),
        sa.Column("lease", sa.Text),
        sa.Column("detail", Json),
        sa.PrimaryKeyConstraint("job_id", "seq", name="holdfast_events_pkey"),
        postgresql_with={"autovacuum_vacuum_insert_scale_factor": "0.05"},
        sqlite_with_rowid=False,
    )
    op.create_table("holdfast_retired_histories", sa.Column("job_id", JobId, primary_key=True))
    op.create_table(
        "holdfast_refusals",
        sa.Column("job_id", JobId, nullable=False),
        sa.Column("attempt", sa.Integer, nullable=False),
        sa.Column("verb", sa.Text, nullable=False),
        sa.Column("reason", sa.Text, nullable=False),
        sa.Column("worker", sa.Text, nullable=False, server_default=""),
        sa.Column("first_at", Time, nullable=False, server_default=store_now()),
        sa.Column("last_at", Time, nullable=False, server_default=store_now()),
        sa.Column("count", sa.Integer, nullable=False, server_default=sa.text("1")),
        sa.PrimaryKeyConstraint("job_id", "attempt", "verb", "reason", "worker", name="holdfast_refusals_pkey"),
    )


def create_queues_and_sources() -> None:
    op.create_table(
        "holdfast_queues",
        sa.Column("name", sa.Text, primary_key=True),
        sa.Column("paused_at", Time),
        sa.Column("max_running", sa.Integer),
        sa.Column("updated_at", Time, nullable=False, server_default=store_now()),
        sa.CheckConstraint("max_running IS NULL OR max_running >= 0", name="holdfast_queues_limit"),
    )
    op.create_table(
        "holdfast_sources",
        sa.Column("name", sa.Text, primary_key=True),
        sa.Column("enabled", sa.Boolean, nullable=False, server_default=sa.true()),
        sa.Column("rate_limit_per_minute", sa.Float),
        sa.Column("burst", sa.Integer, nullable=False, server_default=sa.text("1")),
        sa.Column("max_concurrent", sa.Integer),
        sa.Column("failure_streak", sa.Integer, nullable=False, server_default=sa.text("0")),
        sa.Column("breaker_threshold", sa.Integer, nullable=False, server_default=sa.text("5")),
        sa.Column("breaker_pause_seconds", sa.Float, nullable=False, server_default=sa.text("300")),
        sa.Column("last_success_at", Time),
        sa.Column("last_failure_at", Time),
        sa.Column("paused_until", Time),
        sa.Column("bucket_level", sa.Float, nullable=False, server_default=sa.text("1")),
        sa.Column("bucket_at", Time, nullable=False, server_default=store_now()),
        sa.Column("created_at", Time, nullable=False, server_default=store_now()),
        sa.Column("updated_at", Time, nullable=False, server_default=store_now()),
        sa.CheckConstraint("rate_limit_per_minute IS NULL OR rate_limit_per_minute > 0", name="holdfast_sources_rate"),
        sa.CheckConstraint("max_concurrent IS NULL OR max_concurrent >= 0", name="holdfast_sources_limit"),
        sa.CheckConstraint("burst >= 1", name="holdfast_sources_burst"),
    )
    op.create_table(
        "holdfast_source_events",
        sa.Column("id", JobId, primary_key=True, server_default=new_uuid7()),
        sa.Column("source", sa.Text, nullable=False),
        sa.Column("at", Time, nullable=False, server_default=store_now()),
        sa.Column("event", sa.Text, nullable=False),
        sa.Column("detail", Json),
    )
    op.create_index("holdfast_source_events_by_source", "holdfast_source_events", ["source", "id"])


def create_bookkeeping() -> None:
    op.create_table(
        "holdfast_tasks",
        sa.Column("name", sa.Text, primary_key=True),
        sa.Column("version", sa.Text),
        sa.Column("defaults", Json, nullable=False, server_default=sa.text("'{}'")),
        sa.Column("announced_at", Time, nullable=False, server_default=store_now()),
    )
    op.create_table(
        "holdfast_duties",
        sa.Column("name", sa.Text, primary_key=True),
        sa.Column("ticked_at", Time),
        sa.Column("holder", sa.Text),
        sa.Column("outage_ended_at", Time),
    )
    op.create_table(
        "holdfast_meta",
        sa.Column("key", sa.Text, primary_key=True),
        sa.Column("value", sa.Text, nullable=False),
    )
