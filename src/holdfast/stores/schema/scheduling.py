"""What runs by itself, and when it did."""

from __future__ import annotations

from sqlalchemy import CheckConstraint, Column, Float, Index, Integer, PrimaryKeyConstraint, Table, Text, text

from holdfast.stores.schema.base import metadata
from holdfast.stores.types import JobId, Json, Time, store_now

# `declared` is what code said, `overrides` what was changed at run time; the other columns are the two together.
schedules = Table(
    "holdfast_schedules",
    metadata,
    Column("name", Text, primary_key=True),
    Column("task", Text, nullable=False),
    Column("job", Json, nullable=False, server_default=text("'{}'")),  # payload and options of the jobs it makes
    Column("cron", Text),
    Column("every_seconds", Float),
    Column("anchor_at", Time, nullable=False, server_default=store_now()),  # intervals are counted from here
    Column("timezone", Text, nullable=False, server_default="UTC"),
    Column("misfire", Text, nullable=False, server_default="once"),
    Column("misfire_limit", Integer, nullable=False, server_default=text("1")),
    Column("misfire_grace_seconds", Float, nullable=False, server_default=text("60")),
    Column("tick_argument", Text),  # the parameter that is given the planned instant
    Column("declared", Json),  # null: made by an operator
    Column("declared_at", Time),
    Column("overrides", Json, nullable=False, server_default=text("'{}'")),
    Column("paused_at", Time),
    Column("next_at", Time),  # null: never again
    Column("last_at", Time),
    Column("revision", Integer, nullable=False, server_default=text("1")),
    Column("created_at", Time, nullable=False, server_default=store_now()),
    Column("updated_at", Time, nullable=False, server_default=store_now()),
    CheckConstraint("(cron IS NULL) <> (every_seconds IS NULL)", name="holdfast_schedules_kind"),
    CheckConstraint("every_seconds IS NULL OR every_seconds >= 1", name="holdfast_schedules_interval"),
    CheckConstraint("misfire IN ('skip', 'once', 'all') AND misfire_limit >= 1", name="holdfast_schedules_misfire"),
)

# One row a tick, inserted with its job in one transaction: the primary key is what makes it fire once.
schedule_ticks = Table(
    "holdfast_schedule_ticks",
    metadata,
    Column("schedule", Text, nullable=False),
    Column("planned_at", Time, nullable=False),
    Column("fired_at", Time, nullable=False, server_default=store_now()),
    Column("outcome", Text, nullable=False),  # fired, existing (a unique job was still active), skipped
    Column("job_id", JobId),
    Column("holder", Text),
    Column("detail", Json),
    PrimaryKeyConstraint("schedule", "planned_at", name="holdfast_schedule_ticks_pkey"),
    Index("holdfast_schedule_ticks_fired", "fired_at"),
)
