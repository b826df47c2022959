"""Who may speak to a control plane, who was turned away, and which claims can be asked for again."""

from __future__ import annotations

from sqlalchemy import Boolean, Column, Index, Integer, PrimaryKeyConstraint, Table, Text, false, text

from holdfast.stores.schema.base import metadata
from holdfast.stores.types import Json, Time, store_now

# Who may speak to a control plane. Leases are bound to the id; the secret can be changed under it.
tokens = Table(
    "holdfast_tokens",
    metadata,
    Column("id", Text, primary_key=True),
    Column("name", Text, nullable=False),
    Column("scopes", Json, nullable=False),
    Column("queues", Json),  # null: all of them
    Column("secret_digest", Text, nullable=False),
    Column("single_use", Boolean, nullable=False, server_default=false()),
    Column("created_at", Time, nullable=False, server_default=store_now()),
    Column("rotated_at", Time),
    Column("expires_at", Time),
    Column("revoked_at", Time),
    Column("last_used_at", Time),
)
Index(
    "holdfast_tokens_name",
    tokens.c.name,
    unique=True,
    postgresql_where=text("revoked_at IS NULL"),
    sqlite_where=text("revoked_at IS NULL"),
)

# Requests that a control plane turned away: who, why, where and from where, counted.
access_refusals = Table(
    "holdfast_access_refusals",
    metadata,
    Column("credential", Text, nullable=False, server_default=""),
    Column("reason", Text, nullable=False),
    Column("route", Text, nullable=False),
    Column("address", Text, nullable=False, server_default=""),
    Column("first_at", Time, nullable=False, server_default=store_now()),
    Column("last_at", Time, nullable=False, server_default=store_now()),
    Column("count", Integer, nullable=False, server_default=text("1")),
    PrimaryKeyConstraint("credential", "reason", "route", "address", name="holdfast_access_refusals_pkey"),
)

# Claims that can be asked for again: which leases were granted to the request of that name. Neither the request's id
# nor a lease token can be read from it.
claim_requests = Table(
    "holdfast_claim_requests",
    metadata,
    Column("credential", Text, nullable=False),
    Column("request", Text, nullable=False),
    Column("nonce", Text, nullable=False),
    Column("jobs", Json, nullable=False),
    Column("at", Time, nullable=False, server_default=store_now()),
    PrimaryKeyConstraint("credential", "request", name="holdfast_claim_requests_pkey"),
    Index("holdfast_claim_requests_at", "at"),
)
