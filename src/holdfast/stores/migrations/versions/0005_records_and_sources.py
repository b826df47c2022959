"""Records, the cache, who is inside a source, and what a breaker goes by; the replays of a job.

From here on the database takes no nonsense in the row of a source. What is there already is repaired: a number that is
too low or too high becomes the lowest or the highest there may be, a time that is too late (infinity) the latest; what
is no number and no time at all is taken away, or set to its default. On SQLite a time in another form is rewritten, and
text that begins with a number (100/m) becomes that number.
"""

from __future__ import annotations

import sqlalchemy as sa
from alembic import op

from holdfast.domain.errors import ConfigurationError
from holdfast.stores.migrations import ahead
from holdfast.stores.types import JobId, Json, Time, new_uuid7, store_now

revision = "0005"
down_revision = "0004"


def upgrade() -> None:
    create_index()
    repair_limits()
    add_source_columns()
    add_source_rules()
    create_source_holds()
    create_records()
    create_cache()


def downgrade() -> None:
    raise ConfigurationError(
        "Holdfast never downgrades its tables: restore a backup from before the upgrade, or keep the newer package."
    )


def create_index() -> None:
    connection = op.get_bind()
    if connection.dialect.name == "postgresql":
        ahead.create(connection, revision)
    else:
        replays = sa.text("replay_of IS NOT NULL")
        op.create_index("holdfast_jobs_replays", "holdfast_jobs", ["replay_of"], sqlite_where=replays)


def add_source_columns() -> None:
    for column in (
        sa.Column("paused_by", sa.Text),
        sa.Column("breaker_only", Json),
        sa.Column("breaker_ignores", Json),
        sa.Column("breaker_counts_permanent", sa.Boolean, nullable=False, server_default=sa.true()),
        sa.Column("declared", Json),
    ):
        op.add_column("holdfast_sources", column)


LATEST = "9999-12-31T08:00:00.000000Z"
EARLIEST = "0001-01-02T00:00:00.000000Z"
# The column, its lowest and highest, and what stands for no number; null is left alone where it may be.
NUMBERS = (
    ("rate_limit_per_minute", "5e-324", "1000000000", "NULL"),
    ("burst", "1", "1000000", "1"),
    ("max_concurrent", "0", "1000000", "NULL"),
    ("failure_streak", "0", "2147483647", "0"),
    ("breaker_threshold", "1", "1000000", "5"),
    ("breaker_pause_seconds", "0.001", "315360000", "300"),
    ("bucket_level", "0", "1000000000", "0"),
)
TIMES = ("paused_until", "last_success_at", "last_failure_at")
NEEDED_TIMES = ("bucket_at", "created_at", "updated_at")


def repair_limits() -> None:
    op.execute("DELETE FROM holdfast_sources WHERE name = ''")  # there is no job of such a source
    if op.get_bind().dialect.name == "postgresql":
        numbers = {
            name: f"CASE WHEN CAST({name} AS float8) = 'NaN' THEN {otherwise}"
            f" ELSE least(greatest({name}, {low}), {high}) END"
            for name, low, high, otherwise in NUMBERS
        }
        times = {
            name: f"CASE WHEN {name} > '{LATEST}' THEN '{LATEST}' WHEN {name} >= '{EARLIEST}' THEN {name}"
            f" ELSE {'holdfast_now()' if name in NEEDED_TIMES else 'NULL'} END"
            for name in (*TIMES, *NEEDED_TIMES)
        }
        repair("holdfast_sources", {**numbers, **times})
        return
    now = "(strftime('%Y-%m-%dT%H:%M:%f', 'now') || '000Z')"
    numbers = {name: sqlite_number(name, *bounds) for name, *bounds in NUMBERS}
    times = {name: sqlite_time(name, now if name in NEEDED_TIMES else "NULL") for name in (*TIMES, *NEEDED_TIMES)}
    switch = {
        "enabled": "CASE WHEN typeof(enabled) IN ('integer', 'real') THEN enabled <> 0"
        " ELSE lower(enabled) IN ('true', 't', 'yes', 'y', 'on') END"
    }
    repair("holdfast_sources", {**numbers, **times, **switch})
    repair("holdfast_queues", {"max_running": sqlite_number("max_running", "0", "2147483647", "NULL")})


def repair(table: str, columns: dict[str, str]) -> None:
    """Only what is not as it should be: a sound row is not even written."""
    connection = op.get_bind()
    differs = "IS DISTINCT FROM" if connection.dialect.name == "postgresql" else "IS NOT"
    for name, repaired in columns.items():
        connection.exec_driver_sql(
            f"UPDATE {table} SET {name} = {repaired} WHERE {name} IS NOT NULL AND {name} {differs} ({repaired})",
            execution_options={"no_parameters": True},
        )


def sqlite_number(name: str, low: str, high: str, otherwise: str) -> str:
    """Text counts as the number it begins with, if that is not zero."""
    number = f"CASE WHEN typeof({name}) IN ('integer', 'real') THEN {name} ELSE nullif(CAST({name} AS real), 0) END"
    whole = name not in ("rate_limit_per_minute", "breaker_pause_seconds", "bucket_level")
    bounded = f"min(max({number}, {low}), {high})"
    return f"coalesce({f'CAST({bounded} AS integer)' if whole else bounded}, {otherwise})"


def sqlite_time(name: str, otherwise: str) -> str:
    """In its own form it stays to the microsecond; what SQLite can read in another form is written in that one."""
    well_formed = "0000-00-00T00:00:00.000000Z".replace("0", "[0-9]")
    read = f"strftime('%Y-%m-%dT%H:%M:%f', {name}, '+0 days') || '000Z'"
    is_own = (
        f"{name} GLOB '{well_formed}' AND date(substr({name}, 1, 10), '+0 days') = substr({name}, 1, 10)"
        f" AND substr({name}, 12, 2) < '24' AND substr({name}, 15, 2) < '60' AND substr({name}, 18, 2) < '60'"
    )
    own = f"CASE WHEN {is_own} THEN {name} ELSE {read} END"
    is_time = f"typeof({name}) = 'text' AND {own} >= '{EARLIEST}'"
    return f"CASE WHEN {is_time} THEN min({own}, '{LATEST}') ELSE {otherwise} END"


def add_source_rules() -> None:
    """SQLite adds no constraint to a table; there the guards do it."""
    if op.get_bind().dialect.name != "postgresql":
        return
    in_reach = "{0} >= '0001-01-02T00:00:00Z' AND {0} <= '9999-12-31T08:00:00Z'"
    op.create_check_constraint(
        "holdfast_sources_times",
        "holdfast_sources",
        " AND ".join(in_reach.format(name) for name in (*TIMES, *NEEDED_TIMES)),
    )
    op.create_check_constraint(
        "holdfast_sources_numbers",
        "holdfast_sources",
        "rate_limit_per_minute <= 1000000000 AND burst <= 1000000 AND max_concurrent <= 1000000"
        " AND failure_streak >= 0 AND breaker_threshold >= 1 AND breaker_threshold <= 1000000"
        " AND breaker_pause_seconds > 0 AND breaker_pause_seconds <= 315360000"
        " AND bucket_level >= 0 AND bucket_level <= 1000000000",
    )
    op.create_check_constraint(
        "holdfast_sources_words",
        "holdfast_sources",
        "name <> '' AND paused_by IN ('breaker', 'operator', 'retry_after')"
        " AND json_typeof(breaker_only) = 'array' AND json_typeof(breaker_ignores) = 'array'"
        " AND json_typeof(declared) = 'object'",
    )


def create_source_holds() -> None:
    op.create_table(
        "holdfast_source_holds",
        sa.Column("job_id", JobId, nullable=False),
        sa.Column("attempt", sa.Integer, nullable=False),
        sa.Column("number", sa.Integer, nullable=False),
        sa.Column("source", sa.Text, nullable=False),
        sa.Column("own", sa.Boolean, nullable=False, server_default=sa.false()),
        sa.Column("at", Time, nullable=False, server_default=store_now()),
        sa.Column("left_at", Time),
        sa.PrimaryKeyConstraint("job_id", "attempt", "number", name="holdfast_source_holds_pkey"),
        sqlite_with_rowid=False,
    )
    inside = sa.text("left_at IS NULL")
    op.create_index(
        "holdfast_source_holds_by_source",
        "holdfast_source_holds",
        ["source"],
        postgresql_where=inside,
        sqlite_where=inside,
    )


def create_records() -> None:
    op.create_table(
        "holdfast_records",
        sa.Column("id", JobId, primary_key=True, server_default=new_uuid7()),
        sa.Column("scope", sa.Text, nullable=False),
        sa.Column("source", sa.Text, nullable=False, server_default=""),
        sa.Column("dedupe_key", sa.Text, nullable=False),
        sa.Column("external_id", sa.Text),
        sa.Column("strength", sa.Float, nullable=False, server_default=sa.text("0")),
        sa.Column("data", Json, nullable=False),
        sa.Column("job_id", JobId),
        sa.Column("attempt", sa.Integer),
        sa.Column("created_at", Time, nullable=False, server_default=store_now()),
        sa.Column("updated_at", Time, nullable=False, server_default=store_now()),
    )
    op.create_index("holdfast_records_key", "holdfast_records", ["scope", "source", "dedupe_key"], unique=True)
    op.create_index("holdfast_records_by_scope", "holdfast_records", ["scope", "id"])
    op.create_index("holdfast_records_by_source", "holdfast_records", ["source", "id"])
    of_jobs = sa.text("job_id IS NOT NULL")
    op.create_index(
        "holdfast_records_by_job", "holdfast_records", ["job_id"], postgresql_where=of_jobs, sqlite_where=of_jobs
    )


def create_cache() -> None:
    op.create_table(
        "holdfast_cache",
        sa.Column("source", sa.Text, nullable=False),
        sa.Column("key", sa.Text, nullable=False),
        sa.Column("value", Json, nullable=False),
        sa.Column("stored_at", Time, nullable=False, server_default=store_now()),
        sa.Column("expires_at", Time, nullable=False),
        sa.PrimaryKeyConstraint("source", "key", name="holdfast_cache_pkey"),
    )
    op.create_index("holdfast_cache_expires", "holdfast_cache", ["expires_at"])
