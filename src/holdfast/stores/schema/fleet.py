"""Who works, and what they told of themselves."""

from __future__ import annotations

from sqlalchemy import Column, Integer, Table, Text, text

from holdfast.stores.schema.base import metadata
from holdfast.stores.types import Json, Time, store_now

tasks = Table(
    "holdfast_tasks",
    metadata,
    Column("name", Text, primary_key=True),
    Column("version", Text),
    Column("defaults", Json, nullable=False, server_default=text("'{}'")),
    Column("announced_at", Time, nullable=False, server_default=store_now()),
    Column("kind", Text, nullable=False, server_default="sync"),
    Column("on_lost_lease", Text, nullable=False, server_default="kill"),
)

# For people to look at. Nothing depends on it: a worker that is missing here still holds its leases.
workers = Table(
    "holdfast_workers",
    metadata,
    Column("id", Text, primary_key=True),
    Column("host", Text, nullable=False),
    Column("pid", Integer, nullable=False),
    Column("state", Text, nullable=False),
    Column("app", Text),
    Column("queues", Json),  # null: all of them
    Column("processes", Integer, nullable=False),
    Column("slots", Integer, nullable=False),
    Column("running", Integer, nullable=False),
    Column("version", Text),
    Column("detail", Json),
    Column("started_at", Time, nullable=False, server_default=store_now()),
    Column("beat_at", Time, nullable=False, server_default=store_now()),
    Column("stopped_at", Time),
)
