"""Facts about a Postgres server, its role for us, and our tables in it.

What a role may not see of other sessions is null in Postgres's views, and is left out here.
"""

from __future__ import annotations

from dataclasses import dataclass
from datetime import datetime
from typing import Any

from holdfast.stores.database import Database, Row
from holdfast.stores.schema import jobs, metadata
from holdfast.stores.upgrade import VERSION_TABLE


@dataclass(frozen=True, slots=True)
class Server:
    version: int
    version_text: str
    role: str
    database: str
    is_replica: bool
    read_only: bool
    encoding: str
    pooled: bool
    compiles: bool  # the role's default, whatever our session has set
    fsync: bool
    full_page_writes: bool
    synchronous_commit: str
    synchronous_standbys: bool  # some are configured
    date_style: str  # the role's default, as the next one
    isolation: str
    autovacuum: bool
    triggers_fire: bool


@dataclass(frozen=True, slots=True)
class Slots:
    most: int  # what is left of max_connections after those reserved for superusers
    used: int
    role_limit: int | None


@dataclass(frozen=True, slots=True)
class Session:
    pid: int
    role: str
    application: str
    address: str
    state: str
    seconds: float  # since its transaction began

    def __str__(self) -> str:
        parts = [f"pid {self.pid}", f"user {self.role}", self.application, self.address, self.state]
        return ", ".join(part for part in parts if part) + f", open for {self.seconds:.0f} s"


@dataclass(frozen=True, slots=True)
class TableHealth:
    name: str
    live: int
    dead: int
    vacuum_off: bool
    unlogged: bool


_SERVER = """
    SELECT current_setting('server_version_num')::int, current_setting('server_version'), current_user,
           current_database(), pg_is_in_recovery(), current_setting('default_transaction_read_only') = 'on',
           current_setting('server_encoding'), pg_backend_pid() <> %(known)s,
           coalesce((SELECT reset_val = 'on' FROM pg_settings WHERE name = 'jit'), false),
           current_setting('fsync') = 'on', current_setting('full_page_writes') = 'on',
           current_setting('synchronous_commit'), current_setting('synchronous_standby_names') <> '',
           (SELECT reset_val FROM pg_settings WHERE name = 'DateStyle'),
           (SELECT reset_val FROM pg_settings WHERE name = 'default_transaction_isolation'),
           current_setting('autovacuum') = 'on', current_setting('session_replication_role') <> 'replica'"""

_TABLES = """(
    SELECT oid, relname FROM pg_class
    WHERE relkind IN ('r', 'p') AND relname = ANY(%(names)s) AND pg_table_is_visible(oid)) c"""

# What the verbs do to the tables. The triggers that write the audit log have the rights of its owner.
_EVERY = frozenset(metadata.tables)
_NEVER_CHANGED = {
    f"holdfast_{name}"
    for name in ("artifacts", "claim_requests", "events", "logs", "retired_histories", "source_events")
}
_NEVER_REMOVED = {f"holdfast_{name}" for name in ("duties", "meta", "queues", "sources", "tasks")}
RIGHTS = {
    "SELECT": _EVERY | {"holdfast_attempts", VERSION_TABLE},
    "INSERT": _EVERY - {"holdfast_events"},
    "UPDATE": _EVERY - _NEVER_CHANGED,
    "DELETE": _EVERY - _NEVER_REMOVED - {"holdfast_events"},
}

_RIGHTS = """
    SELECT relname FROM pg_class
    WHERE relkind IN ('r', 'p', 'v') AND relname = ANY(%(names)s) AND pg_table_is_visible(oid)
      AND NOT has_table_privilege(oid, %(privilege)s) ORDER BY relname"""

_WRITABLE_SCHEMA = f"""
    SELECT relnamespace::regnamespace::text FROM pg_class
    WHERE oid = '{jobs.name}'::regclass AND NOT pg_has_role(relowner, 'USAGE')
      AND has_schema_privilege(relnamespace, 'CREATE')"""


_ROW_SECURITY = f"SELECT relname FROM {_TABLES} WHERE row_security_active(oid) ORDER BY relname"

_COLUMNS = f"""
    SELECT c.relname, a.attname FROM pg_attribute a JOIN {_TABLES} ON c.oid = a.attrelid
    WHERE a.attnum > 0 AND NOT a.attisdropped"""

_INDEXES = f"""
    SELECT i.relname, x.indisvalid AND x.indisready AND x.indislive
    FROM pg_index x JOIN {_TABLES} ON c.oid = x.indrelid JOIN pg_class i ON i.oid = x.indexrelid"""

_SLOTS = """
    SELECT current_setting('max_connections')::int
             - CASE WHEN r.rolsuper THEN 0 ELSE current_setting('superuser_reserved_connections')::int
                 + coalesce(current_setting('reserved_connections', true)::int, 0) END,
           (SELECT count(*) FROM pg_stat_activity WHERE backend_type = 'client backend'),
           nullif(r.rolconnlimit, -1)
    FROM pg_roles r WHERE r.rolname = current_user"""

_SESSIONS = """
    SELECT pid, coalesce(usename, ''), coalesce(application_name, ''), coalesce(client_addr::text, 'local'),
           coalesce(state, ''), extract(epoch FROM clock_timestamp() - xact_start)::float8
    FROM pg_stat_activity
    WHERE datname = current_database() AND pid <> pg_backend_pid() AND xact_start IS NOT NULL
      AND backend_type = 'client backend'
      AND xact_start < clock_timestamp() - make_interval(secs => %(seconds)s)
    ORDER BY xact_start LIMIT 10"""

# What a session or a prepared transaction can still see, no vacuum removes, in any table of the database.
_SNAPSHOT = """
    SELECT coalesce(greatest(
      (SELECT max(extract(epoch FROM clock_timestamp() - xact_start)) FROM pg_stat_activity
       WHERE datname = current_database() AND pid <> pg_backend_pid() AND backend_type = 'client backend'
         AND (backend_xmin IS NOT NULL OR backend_xid IS NOT NULL)),
      (SELECT max(extract(epoch FROM clock_timestamp() - prepared)) FROM pg_prepared_xacts
       WHERE database = current_database())), 0)::float8"""

# Postgres counts the rows of a partitioned table, the audit log if somebody made it one, by its partitions alone.
_HEALTH = f"""
    SELECT c.relname, coalesce(sum(s.n_live_tup), 0)::bigint, coalesce(sum(s.n_dead_tup), 0)::bigint,
           coalesce(bool_or(p.reloptions && ARRAY['autovacuum_enabled=false', 'autovacuum_enabled=off']), false),
           coalesce(bool_or(p.relpersistence = 'u'), false)
    FROM {_TABLES}
    CROSS JOIN LATERAL (SELECT c.oid UNION ALL SELECT inhrelid FROM pg_inherits WHERE inhparent = c.oid) part (oid)
    JOIN pg_class p ON p.oid = part.oid LEFT JOIN pg_stat_user_tables s ON s.relid = p.oid
    GROUP BY c.relname ORDER BY c.relname"""

_IDLE_SLOTS = """
    SELECT slot_name, pg_size_pretty(pg_wal_lsn_diff(
      CASE WHEN pg_is_in_recovery() THEN pg_last_wal_replay_lsn() ELSE pg_current_wal_lsn() END, restart_lsn))
    FROM pg_replication_slots WHERE NOT active AND restart_lsn IS NOT NULL ORDER BY slot_name"""

# Base backups are connected in the same way for as long as they take, and so are subscribers, by a logical slot.
# The state of other roles' sessions is null without the rights of pg_read_all_stats.
_STANDBYS = """
    SELECT coalesce(nullif(application_name, ''), 'pid ' || pid), sync_state FROM pg_stat_replication r
    WHERE state IS DISTINCT FROM 'backup' AND NOT EXISTS (
      SELECT FROM pg_replication_slots s WHERE s.active_pid = r.pid AND s.slot_type = 'logical') ORDER BY 1"""

_AHEAD = "SELECT extract(epoch FROM max(until) - clock_timestamp())::float8 FROM holdfast_partitions()"


def server(database: Database) -> Server:
    with database.reading() as transaction:
        known = transaction.cursor.connection.info.backend_pid
        row = transaction.cursor.execute(_SERVER, {"known": known}).fetchone()
    return Server(*row)


def now(database: Database) -> datetime:
    with database.reading() as transaction:
        moment: datetime = transaction.cursor.execute("SELECT clock_timestamp()").fetchone()[0]
    return moment


def missing_rights(database: Database) -> dict[str, list[str]]:
    """By table; what a worker and a client need and our role has not got."""
    missing: dict[str, list[str]] = {}
    for privilege, names in RIGHTS.items():
        for [name] in _rows(database, _RIGHTS, names=sorted(names), privilege=privilege):
            missing.setdefault(name, []).append(privilege)
    return missing


def writable_schema(database: Database) -> str | None:
    """The schema of the tables, if the role may create functions in it without the rights of their owner."""
    found = _rows(database, _WRITABLE_SCHEMA)
    return str(found[0][0]) if found else None


def filtered_tables(database: Database) -> list[str]:
    """The tables of which policies hide rows from our role; without a policy, all of them."""
    return [name for [name] in _on_tables(database, _ROW_SECURITY)]


def columns(database: Database) -> dict[str, set[str]]:
    """Of those of our tables that are there."""
    found: dict[str, set[str]] = {}
    for table, column in _on_tables(database, _COLUMNS):
        found.setdefault(table, set()).add(column)
    return found


def indexes(database: Database) -> dict[str, bool]:
    """The indexes of our tables, and whether they can be used."""
    return {row[0]: bool(row[1]) for row in _on_tables(database, _INDEXES)}


def partitions_ahead(database: Database) -> float | None:
    """For how many seconds to come the audit log has partitions; None where it is one table."""
    [[seconds]] = _rows(database, _AHEAD)
    return None if seconds is None else float(seconds)


def slots(database: Database) -> Slots:
    [row] = _rows(database, _SLOTS)
    return Slots(*row)


def open_transactions(database: Database, seconds: float) -> list[Session]:
    """Those that are older than this, longest first."""
    return [Session(*row) for row in _rows(database, _SESSIONS, seconds=float(seconds))]


def tables(database: Database) -> list[TableHealth]:
    return [TableHealth(*row) for row in _on_tables(database, _HEALTH)]


def oldest_snapshot(database: Database) -> float:
    """For how many seconds the oldest transaction that holds back vacuum has been open; 0 when there is none."""
    [[seconds]] = _rows(database, _SNAPSHOT)
    return max(0.0, float(seconds))


def idle_replication_slots(database: Database) -> list[tuple[str, str]]:
    """Their names and what they keep back."""
    return [(name, size) for name, size in _rows(database, _IDLE_SLOTS)]


def standbys(database: Database) -> list[tuple[str, str | None]]:
    """The names of those that are connected, with their sync_state; None: the role may not see it."""
    return [(name, state) for name, state in _rows(database, _STANDBYS)]


def grants(role: str) -> list[str]:
    """The statements that give a role what workers and clients need, and no more."""
    return [f"GRANT {privilege} ON {', '.join(sorted(names))} TO {role};" for privilege, names in RIGHTS.items()]


def _on_tables(database: Database, question: str) -> list[Row]:
    return _rows(database, question, names=sorted(metadata.tables))


def _rows(database: Database, question: str, **parameters: Any) -> list[Row]:
    with database.reading() as transaction:
        found: list[Row] = transaction.cursor.execute(question, parameters).fetchall()
    return found
