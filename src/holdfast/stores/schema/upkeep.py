"""How long things are kept, who did a duty last, and what else there is to know of a database."""

from __future__ import annotations

from sqlalchemy import CheckConstraint, Column, Float, PrimaryKeyConstraint, Table, Text

from holdfast.domain.lifecycle import TERMINAL
from holdfast.stores.schema.base import in_states, metadata
from holdfast.stores.types import Json, Time, store_now

# How long finished jobs, and the histories of pruned ones, are kept; a queue's own row wins over that of '*'.
retention = Table(
    "holdfast_retention",
    metadata,
    Column("what", Text, nullable=False),  # jobs or histories
    Column("queue", Text, nullable=False, server_default="*"),
    Column("state", Text, nullable=False),
    Column("keep_seconds", Float),  # null: for ever
    Column("updated_at", Time, nullable=False, server_default=store_now()),
    PrimaryKeyConstraint("what", "queue", "state", name="holdfast_retention_pkey"),
    CheckConstraint(
        f"what IN ('jobs', 'histories') AND {in_states(TERMINAL)} AND (keep_seconds IS NULL OR keep_seconds >= 0)",
        name="holdfast_retention_rule",
    ),
)

duties = Table(
    "holdfast_duties",
    metadata,
    Column("name", Text, primary_key=True),
    Column("ticked_at", Time),
    Column("holder", Text),
    # The end of the last outage that this duty noticed: nothing is reaped before one lease of its own after that.
    Column("outage_ended_at", Time),
    Column("detail", Json),  # what the duty wants to remember: how far it came, what it cost
)

meta = Table(
    "holdfast_meta",
    metadata,
    Column("key", Text, primary_key=True),
    Column("value", Text, nullable=False),
)
