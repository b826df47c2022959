"""What happened minute by minute, for charts: a roll-up of the audit log, which can always be computed from it anew."""

from __future__ import annotations

from sqlalchemy import CheckConstraint, Column, Float, Index, Integer, PrimaryKeyConstraint, Table, Text, text

from holdfast.domain.activity import COUNTS, Kind
from holdfast.stores.schema.base import metadata
from holdfast.stores.types import Json, Time

minutes = Table(
    "holdfast_minutes",
    metadata,
    Column("kind", Text, nullable=False),
    Column("name", Text, nullable=False),  # '' for all
    Column("minute", Time, nullable=False),  # its beginning
    *(Column(name, Integer, nullable=False, server_default=text("0")) for name in COUNTS),
    # At the last look in that minute; null where nobody looked.
    Column("ready", Integer),
    Column("scheduled", Integer),
    Column("running", Integer),
    Column("oldest_seconds", Float),
    # How many were how long: arrays over the bounds in `domain/activity.py`, which may end early.
    Column("wait", Json),
    Column("run", Json),
    PrimaryKeyConstraint("kind", "name", "minute", name="holdfast_minutes_pkey"),
    CheckConstraint(f"kind IN ({', '.join(repr(str(kind)) for kind in Kind)})", name="holdfast_minutes_kind"),
    Index("holdfast_minutes_minute", "minute"),
)
