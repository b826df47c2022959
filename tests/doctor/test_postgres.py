"""Every fault is really planted, is found with advice, and is gone from the findings once it is taken away."""

from __future__ import annotations

import importlib
import pkgutil
import re
from collections.abc import Callable, Iterator
from contextlib import AbstractContextManager, ExitStack, contextmanager
from dataclasses import dataclass, replace

import psycopg
import pytest

from holdfast.doctor import Limits
from holdfast.domain.findings import Severity
from holdfast.domain.job import NewJob
from holdfast.domain.lifecycle import State
from holdfast.domain.outcome import Succeeded
from holdfast.domain.retention import Group, Kept
from holdfast.stores import guards, statements
from holdfast.stores.inspection.postgres import RIGHTS, grants
from holdfast.stores.schema import metadata
from holdfast.stores.statements.retention import forget
from holdfast.stores.statements.words import POSTGRES, Statement
from holdfast.stores.upgrade import upgrade
from holdfast.wiring.sql import open_database, open_store
from tests.contract.steps import settle
from tests.doctor.conftest import MOST_CONNECTIONS, PATIENT, Ground, examined, grave
from tests.servers.pgbouncer import PgbouncerEndpoint, PgbouncerServer
from tests.servers.waiting import wait_until

Plant = Callable[[Ground], AbstractContextManager[None]]
PROBLEM, WARNING = Severity.PROBLEM, Severity.WARNING


@dataclass(frozen=True)
class Fault:
    name: str
    check: str
    severity: Severity
    found: str
    advice: str
    plant: Plant
    limits: Limits = PATIENT


def setting(name: str, value: str) -> Plant:
    return lambda ground: ground.setting(name, value)


def database_setting(name: str, value: str) -> Plant:
    return lambda ground: ground.database_setting(name, value)


def done(statement: str, undo: str) -> Plant:
    return lambda ground: ground.done(statement, undo)


def insert_worker(name: str, host: str, beat: str = "holdfast_now()") -> str:
    return (
        "INSERT INTO holdfast_workers (id, host, pid, state, processes, slots, running, beat_at)"
        f" VALUES ('{name}', '{host}', 1, 'idle', 1, 1, 0, {beat});"
    )


ALIVE_AND_WELL = (
    insert_worker("w", "h") + "INSERT INTO holdfast_duties (name, ticked_at) VALUES"
    " ('reaper', holdfast_now()), ('retention', holdfast_now());"
)
NO_WORKERS = "DELETE FROM holdfast_workers; DELETE FROM holdfast_duties"


@contextmanager
def dead_rows(ground: Ground) -> Iterator[None]:
    with ground.done(
        "ALTER TABLE holdfast_queues SET (autovacuum_vacuum_threshold = 1000000)",
        "ALTER TABLE holdfast_queues RESET (autovacuum_vacuum_threshold); TRUNCATE holdfast_queues",
    ):
        ground("INSERT INTO holdfast_queues (name) SELECT 'q' || n FROM generate_series(1, 400) n")
        ground("DELETE FROM holdfast_queues WHERE name <> 'q1'")
        count = "SELECT n_dead_tup FROM pg_stat_user_tables WHERE relname = 'holdfast_queues'"
        wait_until(lambda: ground(count)[0][0] >= 300, what="the statistics know of the dead rows")
        yield


@contextmanager
def full_house(ground: Ground) -> Iterator[None]:
    with ExitStack() as guests:
        for _ in range(MOST_CONNECTIONS - 6):
            guests.enter_context(ground.connect())
        yield


@contextmanager
def forgotten_transaction(ground: Ground) -> Iterator[None]:
    with ground.connect() as guest:
        guest.execute("SELECT 1 FROM holdfast_jobs")
        old = "SELECT count(*) FROM pg_stat_activity WHERE xact_start < clock_timestamp() - interval '0.3 s'"
        wait_until(lambda: ground(f"{old} AND state = 'idle in transaction'") == [(1,)], what="it is old")
        yield


@contextmanager
def unfinished_index(ground: Ground) -> Iterator[None]:
    """What is left when an index could not be built."""
    ground("INSERT INTO holdfast_jobs (task) VALUES ('twice'), ('twice')")
    try:
        with pytest.raises(psycopg.errors.UniqueViolation):
            ground("CREATE UNIQUE INDEX CONCURRENTLY holdfast_jobs_mine ON holdfast_jobs (task)")
        yield
    finally:
        ground("DROP INDEX holdfast_jobs_mine")
        ground("UPDATE holdfast_jobs SET state = 'cancelled'; DELETE FROM holdfast_jobs")


@contextmanager
def wrong_clock(ground: Ground) -> Iterator[None]:
    ground(
        "CREATE FUNCTION public.clock_timestamp() RETURNS timestamptz LANGUAGE sql"
        " AS $$SELECT pg_catalog.clock_timestamp() + interval '4050 s'$$"
    )
    try:
        with ground.database_setting("search_path", "public, pg_catalog"):
            yield
    finally:
        ground("DROP FUNCTION public.clock_timestamp()")


@contextmanager
def stuck_jobs(ground: Ground) -> Iterator[None]:
    ground(
        "INSERT INTO holdfast_jobs (task, run_after) SELECT 'x', now() - interval '1 hour' FROM generate_series(1, 3)"
    )
    try:
        yield
    finally:
        ground("UPDATE holdfast_jobs SET state = 'cancelled'; DELETE FROM holdfast_jobs")


def schedule(task: str, next_at: str) -> Plant:
    return done(
        "INSERT INTO holdfast_tasks (name) VALUES ('known');"
        "INSERT INTO holdfast_schedules (name, task, cron, next_at)"
        f" VALUES ('nightly', '{task}', '0 3 * * *', {next_at})",
        "DELETE FROM holdfast_schedules; DELETE FROM holdfast_tasks",
    )


@contextmanager
def version(ground: Ground, revision: str) -> Iterator[None]:
    [(before,)] = ground("SELECT version_num FROM holdfast_schema_version")
    with ground.done(
        f"UPDATE holdfast_schema_version SET version_num = '{revision}'",
        f"UPDATE holdfast_schema_version SET version_num = '{before}'",
    ):
        yield


def at_version(revision: str) -> Plant:
    return lambda ground: version(ground, revision)


FAULTS = [
    Fault("fsync", "durability", PROBLEM, "fsync is off", "fsync = on", setting("fsync", "off")),
    Fault(
        "full_page_writes",
        "durability",
        PROBLEM,
        "full_page_writes is off",
        "full_page_writes = on",
        setting("full_page_writes", "off"),
    ),
    Fault(
        "synchronous_commit",
        "durability",
        PROBLEM,
        "may be lost",
        "SET synchronous_commit = on",
        database_setting("synchronous_commit", "off"),
    ),
    Fault(
        "unlogged",
        "durability",
        PROBLEM,
        "holdfast_logs is UNLOGGED",
        "SET LOGGED",
        done("ALTER TABLE holdfast_logs SET UNLOGGED", "ALTER TABLE holdfast_logs SET LOGGED"),
    ),
    Fault(
        "read_only",
        "store",
        PROBLEM,
        "read-only by default",
        "default_transaction_read_only",
        database_setting("default_transaction_read_only", "on"),
    ),
    Fault(
        "disabled_trigger",
        "guards",
        PROBLEM,
        "triggers are disabled: holdfast_",
        "holdfast db upgrade",
        done("ALTER TABLE holdfast_jobs DISABLE TRIGGER USER", "ALTER TABLE holdfast_jobs ENABLE TRIGGER USER"),
    ),
    Fault(
        "replication_role",
        "guards",
        PROBLEM,
        "session_replication_role is replica",
        "RESET session_replication_role",
        database_setting("session_replication_role", "replica"),
    ),
    Fault("invalid_index", "indexes", WARNING, "holdfast_jobs_mine is invalid", "REINDEX INDEX", unfinished_index),
    Fault(
        "dropped_index",
        "indexes",
        WARNING,
        "indexes are missing: holdfast_source_events_by_source",
        "pg_dump",
        done(
            "DROP INDEX holdfast_source_events_by_source",
            "CREATE INDEX holdfast_source_events_by_source ON holdfast_source_events (source, id)",
        ),
    ),
    Fault("clock", "clock", WARNING, r"is 40\d\d\.\d s ahead", "time service", wrong_clock),
    Fault(
        "full_house", "connections", WARNING, f"of {MOST_CONNECTIONS} connections are in use", "pgbouncer", full_house
    ),
    Fault(
        "large_fleet",
        "connections",
        WARNING,
        "5 live workers may want 60",
        "Raise max_connections",
        done(ALIVE_AND_WELL + "".join(insert_worker(f"w{n}", "h") for n in range(4)), NO_WORKERS),
    ),
    Fault("autovacuum", "vacuum", PROBLEM, "autovacuum is off", "autovacuum = on", setting("autovacuum", "off")),
    Fault(
        "autovacuum_of_a_table",
        "vacuum",
        PROBLEM,
        "switched off for holdfast_events",
        "RESET (autovacuum_enabled)",
        done(
            "ALTER TABLE holdfast_events SET (autovacuum_enabled = off)",
            "ALTER TABLE holdfast_events RESET (autovacuum_enabled)",
        ),
    ),
    Fault(
        "dead_rows",
        "vacuum",
        WARNING,
        "holdfast_queues has ",
        "VACUUM (ANALYZE)",
        dead_rows,
        replace(PATIENT, dead_rows=200),
    ),
    Fault(
        "open_transaction",
        "transactions",
        WARNING,
        "an idle transaction is open: pid ",
        "pg_terminate_backend(",
        forgotten_transaction,
        replace(PATIENT, open_transaction_seconds=0.2),
    ),
    Fault(
        "replication_slot",
        "replication",
        WARNING,
        "replication slot forgotten",
        "pg_drop_replication_slot('forgotten')",
        done(
            "SELECT pg_create_physical_replication_slot('forgotten', true)",
            "SELECT pg_drop_replication_slot('forgotten')",
        ),
    ),
    Fault(
        "silent_worker",
        "workers",
        WARNING,
        "1 workers went silent without a goodbye: gone",
        "logs",
        done(insert_worker("gone", "h", "holdfast_now() - interval '1 hour'"), NO_WORKERS),
    ),
    Fault(
        "idle_reaper",
        "duties",
        WARNING,
        "the reaper last ran ",
        "store failed",
        done(
            ALIVE_AND_WELL
            + "UPDATE holdfast_duties SET ticked_at = holdfast_now() - interval '1 hour' WHERE name = 'reaper'",
            NO_WORKERS,
        ),
    ),
    Fault(
        "idle_retention",
        "duties",
        WARNING,
        "retention last ran ",
        "upkeep failed",
        done(
            ALIVE_AND_WELL
            + "UPDATE holdfast_duties SET ticked_at = holdfast_now() - interval '1 day' WHERE name = 'retention'",
            NO_WORKERS,
        ),
    ),
    Fault("stuck_jobs", "stuck", WARNING, "3 jobs do not move: ", "holdfast stuck", stuck_jobs),
    Fault(
        "late_schedule",
        "schedules",
        WARNING,
        "nightly should have fired ",
        "Start a worker",
        schedule("known", "holdfast_now() - interval '1 hour'"),
    ),
    Fault(
        "orphaned_schedule",
        "schedules",
        WARNING,
        "jobs of the task nobody_has_it",
        "remove the schedule",
        schedule("nobody_has_it", "holdfast_now() + interval '1 hour'"),
    ),
    Fault(
        "several_hosts",
        "artifacts",
        WARNING,
        "2 hosts: h, other",
        "HOLDFAST_ARTIFACTS",
        done(ALIVE_AND_WELL + insert_worker("w2", "other"), NO_WORKERS),
    ),
    Fault(
        "old_schema",
        "schema",
        PROBLEM,
        "is at schema 0002",
        "holdfast db upgrade",
        at_version("0002"),
    ),
    Fault(
        "missing_column",
        "schema",
        PROBLEM,
        "parts of the schema are missing: holdfast_duties.holder",
        "backup",
        done(
            "ALTER TABLE holdfast_duties RENAME COLUMN holder TO keeper",
            "ALTER TABLE holdfast_duties RENAME COLUMN keeper TO holder",
        ),
    ),
    Fault(
        "missing_table",
        "schema",
        PROBLEM,
        "parts of the schema are missing: holdfast_logs",
        "backup",
        done("ALTER TABLE holdfast_logs RENAME TO lines", "ALTER TABLE lines RENAME TO holdfast_logs"),
    ),
    Fault(
        "missing_version",
        "schema",
        PROBLEM,
        "parts of the schema are missing: holdfast_schema_version",
        "backup",
        done(
            "ALTER TABLE holdfast_schema_version RENAME TO versions",
            "ALTER TABLE versions RENAME TO holdfast_schema_version",
        ),
    ),
    Fault("new_schema", "schema", PROBLEM, "a newer Holdfast", "Install", at_version("9999")),
    Fault(
        "foreign_guards",
        "schema",
        PROBLEM,
        "triggers in the database are not those of this Holdfast",
        "holdfast db upgrade",
        done(
            "UPDATE holdfast_meta SET value = 'x' || value WHERE key = 'installed'",
            "UPDATE holdfast_meta SET value = substr(value, 2) WHERE key = 'installed'",
        ),
    ),
]


def test_a_database_in_good_order_gives_no_warning(ground: Ground) -> None:
    findings = ground.examined()
    assert grave(findings) == []
    assert {"durability", "guards", "indexes", "clock", "vacuum", "notifications"} <= {
        finding.check for finding in findings if finding.severity is Severity.OK
    }


@pytest.mark.parametrize("fault", FAULTS, ids=lambda fault: fault.name)
def test_a_fault_is_found(ground: Ground, fault: Fault) -> None:
    with fault.plant(ground):
        found = grave(ground.examined(fault.limits))
    assert [(finding.check, finding.severity) for finding in found] == [(fault.check, fault.severity)], found
    assert re.search(fault.found, found[0].found)
    assert fault.advice in found[0].advice
    # The same limits: what was found was the fault and not the limit.
    wait_until(lambda: grave(ground.examined(fault.limits)) == [], what="it is in good order again")


def test_a_missing_trigger_and_the_advice_for_it(ground: Ground) -> None:
    [(name,)] = ground(
        "SELECT tgname FROM pg_trigger WHERE tgrelid = 'holdfast_events'::regclass AND NOT tgisinternal"
        " ORDER BY tgname LIMIT 1"
    )
    ground(f"DROP TRIGGER {name} ON holdfast_events")
    [finding] = grave(ground.examined())
    assert (finding.check, finding.severity) == ("guards", PROBLEM)
    assert name in finding.found
    assert "`holdfast db upgrade`" in finding.advice
    database = open_database(ground.url)
    upgrade(database.engine)
    database.close()
    assert grave(ground.examined()) == []


def _live_a_life(url: str) -> None:
    """A job from its birth until nothing speaks of it any more, with a queue, a source and a worker."""
    store = open_store(url, notify=False)
    try:
        job_id = store.enqueue(NewJob(task="work", source="api")).id
        store.set_source("api", max_concurrent=1)
        store.limit_queue("default", 1)
        [claimed] = store.claim("w", 1)
        assert settle(store, claimed, Succeeded()).ok
        assert store.prune(Group(Kept.JOBS, "default", State.SUCCEEDED, 0.0), 10).ids == (job_id,)
        assert store.retire(Group(Kept.HISTORIES, "default", State.SUCCEEDED, 0.0), 10).jobs == 1
    finally:
        store.close()


def test_a_role_without_rights(ground: Ground) -> None:
    ground("CREATE ROLE poor LOGIN PASSWORD 'poor'; GRANT SELECT ON ALL TABLES IN SCHEMA public TO poor")
    try:
        poor = ground.url.replace(ground.url.partition("://")[2].partition("@")[0], "poor:poor")
        found = grave(examined(poor, ground.folder))
        assert {finding.check for finding in found} == {"rights"}
        [jobs] = [finding for finding in found if "holdfast_jobs" in finding.found]
        assert "INSERT and UPDATE and DELETE" in jobs.found
        assert "GRANT INSERT, UPDATE, DELETE ON holdfast_jobs" in jobs.advice
        for finding in found:
            ground(finding.advice.partition(": ")[2].replace("the role.", "poor"))
        assert grave(examined(poor, ground.folder)) == []
        _live_a_life(poor)  # what it says is enough
        ground("GRANT CREATE ON SCHEMA public TO PUBLIC")  # the default before Postgres 15
        [finding] = grave(examined(poor, ground.folder))
        assert (finding.check, finding.severity) == ("rights", WARNING)
        assert "may create functions in the schema public" in finding.found
        assert not [finding for finding in grave(examined(ground.url, ground.folder)) if finding.check == "rights"]
        ground(finding.advice.partition(": ")[2].replace(", and from the role.", ""))
        assert grave(examined(poor, ground.folder)) == []
        ground("REVOKE DELETE ON holdfast_logs FROM poor")
        [finding] = grave(examined(poor, ground.folder))
        assert "the role has no DELETE on holdfast_logs" in finding.found
        ground("REVOKE ALL ON ALL TABLES IN SCHEMA public FROM poor")
        [refused] = grave(examined(poor, ground.folder))
        assert (refused.check, refused.severity) == ("store", PROBLEM)
        assert "permission denied" in refused.found
    finally:
        ground("REVOKE CREATE ON SCHEMA public FROM PUBLIC")
        ground("REVOKE ALL ON ALL TABLES IN SCHEMA public FROM poor; DROP ROLE poor")


def test_row_level_security_is_named(ground: Ground) -> None:
    """As a managed service enables it for every table of the schema `public`."""
    ground("CREATE ROLE filtered LOGIN PASSWORD 'filtered'")
    try:
        for statement in grants("filtered"):
            ground(statement)
        ground("ALTER TABLE holdfast_jobs ENABLE ROW LEVEL SECURITY")
        filtered = ground.url.replace(ground.url.partition("://")[2].partition("@")[0], "filtered:filtered")
        [finding] = grave(examined(filtered, ground.folder))
        assert (finding.check, finding.severity) == ("rights", WARNING)
        assert "row-level security of holdfast_jobs" in finding.found
        assert grave(ground.examined()) == []  # it does not apply to the owner
    finally:
        ground("ALTER TABLE holdfast_jobs DISABLE ROW LEVEL SECURITY; DROP OWNED BY filtered; DROP ROLE filtered")


def test_the_rights_are_those_that_the_statements_need() -> None:
    """Read off the text of everything that we ever run: verbs, and the triggers that they set off."""
    texts = list(guards.statements(POSTGRES))
    for module in pkgutil.iter_modules(statements.__path__, f"{statements.__name__}."):
        texts += [
            found.sql(POSTGRES)
            for found in vars(importlib.import_module(module.name)).values()
            if isinstance(found, Statement)
        ]
    texts += [forget(table).sql(POSTGRES) for table in ("holdfast_logs", "holdfast_artifacts", "holdfast_refusals")]
    needed: dict[str, set[str]] = {"INSERT": set(), "UPDATE": set(), "DELETE": set()}
    for text in texts:
        needed["INSERT"] |= set(re.findall(r"INSERT INTO (holdfast_\w+)", text))
        needed["DELETE"] |= set(re.findall(r"DELETE FROM (holdfast_\w+)", text))
        needed["UPDATE"] |= set(re.findall(r"UPDATE (holdfast_\w+)", text))
        needed["UPDATE"] |= set(re.findall(r"INSERT INTO (holdfast_\w+)(?=[^;]*\bDO UPDATE\b)", text))
    assert {name: set(tables) for name, tables in RIGHTS.items() if name != "SELECT"} == needed
    assert RIGHTS["SELECT"] >= set(metadata.tables)


def test_another_encoding(ground: Ground) -> None:
    assert ground.server is not None
    ground("CREATE DATABASE latin ENCODING 'LATIN1' TEMPLATE template0")
    try:
        url = ground.server.url("latin")
        database = open_database(url)
        upgrade(database.engine)
        database.close()
        [finding] = grave(examined(url, ground.folder))
        assert "LATIN1" in finding.found
        assert "UTF8" in finding.advice
    finally:
        ground("DROP DATABASE latin WITH (FORCE)")


def test_a_replica(ground: Ground) -> None:
    server = ground.server
    assert server is not None
    server.stop()
    signal_file = server.data_dir / "standby.signal"
    signal_file.touch()
    server.start()
    try:
        found = grave(ground.examined())
        assert [finding.check for finding in found if finding.severity is PROBLEM] == ["store"]
        assert "replica" in found[0].found
        assert "primary" in found[0].advice
    finally:
        server.stop()
        signal_file.unlink()
        server.start()
    assert grave(ground.examined()) == []


def test_a_server_that_is_not_there(ground: Ground) -> None:
    for old, new, said in (
        (f":{ground.server.port if ground.server else 0}/", ":1/", "Connection refused"),
        ("/jobs", "/nowhere", "does not exist"),
        ("://holdfast:", "://holdfast:not", "password"),
    ):
        [finding] = grave(examined(ground.url.replace(old, new), ground.folder))
        assert (finding.check, finding.severity) == ("store", PROBLEM)
        assert said in finding.found
        assert finding.advice


@pytest.mark.usefixtures("pgbouncer")  # it may have to be fetched, or the test be skipped
def test_a_pooler_and_the_ways_of_a_listener(ground: Ground) -> None:
    with PgbouncerServer(ground.url) as pooler:
        assert isinstance(pooler, PgbouncerEndpoint)
        pooled = pooler.through(ground.url)
        for listen, said in (
            ({}, "would share its session"),
            ({"HOLDFAST_LISTEN_URL": ground.url.replace("/jobs", "/postgres")}, "did not arrive"),
            ({"HOLDFAST_LISTEN_URL": ground.url.replace("/jobs", "/nowhere")}, "does not exist"),
        ):
            findings = examined(pooled, ground.folder, replace(PATIENT, notification_seconds=0.5), dict(listen))
            [finding] = grave(findings)
            assert (finding.check, finding.severity) == ("notifications", WARNING)
            assert said in finding.found
            assert "HOLDFAST_LISTEN_URL" in finding.advice
            assert "through a pooler" in next(f.found for f in findings if f.check == "pooler")
        assert grave(examined(pooled, ground.folder, environment={"HOLDFAST_LISTEN_URL": ground.url})) == []
        assert grave(examined(pooled, ground.folder, environment={"HOLDFAST_NOTIFY": "false"})) == []
