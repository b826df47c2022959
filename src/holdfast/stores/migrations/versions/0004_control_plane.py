"""Tokens, refused requests, claims that can be asked for again, webhooks, and the audit log by time."""

from __future__ import annotations

import sqlalchemy as sa
from alembic import op

from holdfast.domain.errors import ConfigurationError
from holdfast.stores.migrations import ahead
from holdfast.stores.types import Json, Time, store_now

revision = "0004"
down_revision = "0003"


def upgrade() -> None:
    create_index()
    op.add_column("holdfast_jobs", sa.Column("webhook", Json))
    create_tokens()
    create_access_refusals()
    create_claim_requests()


def downgrade() -> None:
    raise ConfigurationError(
        "Holdfast never downgrades its tables: restore a backup from before the upgrade, or keep the newer package."
    )


def create_index() -> None:
    connection = op.get_bind()
    if connection.dialect.name == "postgresql":
        ahead.create(connection, revision)
    else:
        op.create_index("holdfast_events_at", "holdfast_events", ["at"])


def create_tokens() -> None:
    op.create_table(
        "holdfast_tokens",
        sa.Column("id", sa.Text, primary_key=True),
        sa.Column("name", sa.Text, nullable=False),
        sa.Column("scopes", Json, nullable=False),
        sa.Column("queues", Json),
        sa.Column("secret_digest", sa.Text, nullable=False),
        sa.Column("single_use", sa.Boolean, nullable=False, server_default=sa.false()),
        sa.Column("created_at", Time, nullable=False, server_default=store_now()),
        sa.Column("rotated_at", Time),
        sa.Column("expires_at", Time),
        sa.Column("revoked_at", Time),
        sa.Column("last_used_at", Time),
    )
    live = sa.text("revoked_at IS NULL")
    op.create_index(
        "holdfast_tokens_name", "holdfast_tokens", ["name"], unique=True, postgresql_where=live, sqlite_where=live
    )


def create_access_refusals() -> None:
    op.create_table(
        "holdfast_access_refusals",
        sa.Column("credential", sa.Text, nullable=False, server_default=""),
        sa.Column("reason", sa.Text, nullable=False),
        sa.Column("route", sa.Text, nullable=False),
        sa.Column("address", sa.Text, nullable=False, server_default=""),
        sa.Column("first_at", Time, nullable=False, server_default=store_now()),
        sa.Column("last_at", Time, nullable=False, server_default=store_now()),
        sa.Column("count", sa.Integer, nullable=False, server_default=sa.text("1")),
        sa.PrimaryKeyConstraint("credential", "reason", "route", "address", name="holdfast_access_refusals_pkey"),
    )


def create_claim_requests() -> None:
    op.create_table(
        "holdfast_claim_requests",
        sa.Column("credential", sa.Text, nullable=False),
        sa.Column("request", sa.Text, nullable=False),
        sa.Column("nonce", sa.Text, nullable=False),
        sa.Column("jobs", Json, nullable=False),
        sa.Column("at", Time, nullable=False, server_default=store_now()),
        sa.PrimaryKeyConstraint("credential", "request", name="holdfast_claim_requests_pkey"),
    )
    op.create_index("holdfast_claim_requests_at", "holdfast_claim_requests", ["at"])
