"""The audit log resists a role with the rights of a worker, whatever that role creates in its own session."""

from __future__ import annotations

import sqlite3
import uuid
from collections.abc import Iterator
from contextlib import closing, contextmanager, suppress
from typing import Any

import psycopg
import pytest
from sqlalchemy import make_url
from sqlalchemy.exc import DBAPIError

from holdfast.domain.job import NewJob
from holdfast.domain.lifecycle import State
from holdfast.domain.outcome import Report, Succeeded
from holdfast.domain.retention import Group, Kept
from holdfast.maintenance.verify import verify
from holdfast.stores.guards.installed import QUESTION
from holdfast.stores.ids import new_ids
from holdfast.stores.inspection.postgres import grants
from holdfast.stores.postgres import open_postgres
from holdfast.stores.upgrade import check, upgrade
from holdfast.stores.verbs import retaining
from holdfast.wiring.sql import histories, references
from tests.chaos.databases import connect, opened, query, sqlite_path, with_options

FORGED = "(job_id, seq, at, event, from_state, to_state, attempt)"
EARLIER_GRANTS = "GRANT INSERT, DELETE ON holdfast_events TO {role}"
GENEROUS_GRANTS = (
    "GRANT ALL ON ALL TABLES IN SCHEMA public TO {role}; GRANT ALL ON ALL FUNCTIONS IN SCHEMA public TO {role}"
)

OWNERS_OF_FUNCTIONS = (
    "SELECT DISTINCT pg_get_userbyid(proowner) FROM pg_proc WHERE prosecdef AND starts_with(proname, 'holdfast')"
)


@pytest.fixture(params=["documented", "earlier", "generous"])
def worker_url(request: pytest.FixtureRequest, postgres_url: str) -> Iterator[str]:
    """A role with the documented rights, with those of earlier documentation, and with all that can be granted."""
    with role_in(postgres_url) as (role, url):
        for statement in grants(role):
            query(postgres_url, statement)
        if request.param != "documented":
            query(postgres_url, EARLIER_GRANTS.format(role=role))
        if request.param == "generous":
            query(postgres_url, GENEROUS_GRANTS.format(role=role))
        query(postgres_url, f"GRANT CREATE ON SCHEMA public TO {role}")  # as before Postgres 15
        yield url


@pytest.fixture
def plain_worker(postgres_url: str) -> Iterator[str]:
    """The documented rights, and a schema in which everyone may create: the default before Postgres 15."""
    with role_in(postgres_url) as (role, url):
        for statement in (*grants(role), f"GRANT CREATE ON SCHEMA public TO {role}"):
            query(postgres_url, statement)
        yield url


@contextmanager
def role_in(url: str) -> Iterator[tuple[str, str]]:
    role = f"worker_{uuid.uuid4().hex[:12]}"
    query(url, f"CREATE ROLE {role} LOGIN PASSWORD 'worker'")
    try:
        yield role, make_url(url).set(username=role, password="worker").render_as_string(hide_password=False)
    finally:
        query(url, f"DROP OWNED BY {role} CASCADE; DROP ROLE {role}")


def bring_up_to_date(url: str) -> None:
    database = open_postgres(url)
    upgrade(database.engine)
    check(database.engine)
    database.dispose()


def finished_job(url: str, **options: Any) -> str:
    with opened(url) as store:
        enqueued = store.enqueue(NewJob(task="work", **options))
        [claimed] = store.claim("w", 1)
        store.settle([Report(claimed.job_id, claimed.attempt, claimed.lease_token, Succeeded(), worker="w")])
        return enqueued.id


def pruned_job(url: str) -> str:
    job_id = finished_job(url)
    query(url, f"DELETE FROM holdfast_jobs WHERE id = '{job_id}'")
    return job_id


def log(url: str) -> list[tuple[Any, ...]]:
    return query(url, "SELECT job_id, seq, event, from_state, to_state FROM holdfast_events ORDER BY job_id, seq")


def violations(url: str) -> tuple[str, ...]:
    with opened(url) as store:
        return tuple(found.rule for found in verify(histories(store), references=references(store)).violations)


def attempt(url: str, script: str) -> bool:
    """Run it in one session; False if the database refused any of it."""
    with connect(url, autocommit=True) as connection, suppress(psycopg.Error):
        connection.execute(script)
        return True
    return False


def in_trigger(*statements: str) -> str:
    """Run statements inside a trigger of a temporary table, where pg_trigger_depth() is 1."""
    body = "; ".join(statements)
    return f"""
        CREATE TEMP TABLE t (x int);
        CREATE FUNCTION pg_temp.act() RETURNS trigger LANGUAGE plpgsql AS $act$ BEGIN {body}; RETURN NEW; END $act$;
        CREATE TRIGGER act BEFORE INSERT ON t FOR EACH ROW EXECUTE FUNCTION pg_temp.act();
        INSERT INTO t VALUES (1)"""


def attacks(job_id: str, pruned_id: str) -> dict[str, str]:
    unknown = "01890a5d-ac96-774b-bcce-b302099a8057"
    forged = f"INSERT INTO holdfast_events {FORGED} VALUES"
    delete_job = f"DELETE FROM holdfast_jobs WHERE id = '{job_id}'"
    delete_events = f"DELETE FROM holdfast_events WHERE job_id = '{job_id}'"
    audit_of_own_table = """
        CREATE TEMP TABLE mine (LIKE holdfast_jobs);
        CREATE TRIGGER forge AFTER {timing} ON mine {tables} FOR EACH STATEMENT EXECUTE FUNCTION {function}();
        INSERT INTO mine SELECT * FROM holdfast_jobs; UPDATE mine SET seq = 9; DELETE FROM mine"""
    new, old = "REFERENCING NEW TABLE AS new_rows", "REFERENCING OLD TABLE AS old_rows"
    return {
        "a job with its history, in a trigger": in_trigger(delete_job, delete_events),
        "a history, in a trigger": in_trigger(delete_events),
        "a part of a history, in a trigger": in_trigger(f"{delete_events} AND seq = 2"),
        "a pruned history, in a trigger": in_trigger(f"DELETE FROM holdfast_events WHERE job_id = '{pruned_id}'"),
        "a forged next event": in_trigger(f"{forged} ('{job_id}', 4, now(), 'requeued', 'succeeded', 'pending', 1)"),
        "a forged job": in_trigger(f"{forged} ('{unknown}', 1, now(), 'pruned', 'failed', NULL, 0)"),
        "an update": in_trigger("UPDATE holdfast_events SET event = 'failed'"),
        "a truncation": in_trigger("TRUNCATE holdfast_events"),
        "a direct deletion": delete_events,
        "a direct insertion": f"{forged} ('{unknown}', 1, now(), 'enqueued', NULL, 'pending', 0)",
        "a copy": f"COPY holdfast_events {FORGED} FROM PROGRAM 'true'",
        "a merge": in_trigger(
            "MERGE INTO holdfast_events e USING holdfast_jobs j ON e.job_id = j.id WHEN MATCHED THEN DELETE"
        ),
        "an insert of its own": audit_of_own_table.format(
            timing="INSERT", tables=new, function="holdfast_audit_insert"
        ),
        "an update of its own": audit_of_own_table.format(
            timing="UPDATE", tables=f"{new} {old.removeprefix('REFERENCING ')}", function="holdfast_audit_update"
        ),
        "a delete of its own": audit_of_own_table.format(timing="DELETE", tables=old, function="holdfast_audit_delete"),
        "a retirement of its own": f"""
            CREATE TEMP TABLE mine (job_id uuid);
            CREATE TRIGGER forge AFTER INSERT ON mine {new} FOR EACH STATEMENT
              EXECUTE FUNCTION holdfast_retire_histories();
            INSERT INTO mine VALUES ('{pruned_id}')""",
        "a retirement before the pruning": f"INSERT INTO holdfast_retired_histories VALUES ('{job_id}')",
        "a retirement that hides the job": f"""
            CREATE TEMP TABLE holdfast_jobs (LIKE public.holdfast_jobs);
            INSERT INTO public.holdfast_retired_histories VALUES ('{job_id}')""",
    }  # fmt: skip


# What the owner may do, or could undo by switching the guards off: `verify` reports it.
NOTICED = {"a forged next event"}
POSSIBLE_FOR_OWNER = {"a forged job"}


def test_worker_can_neither_remove_nor_forge_history(postgres_url: str, worker_url: str) -> None:
    job_id, pruned_id = finished_job(postgres_url), pruned_job(postgres_url)
    before = log(postgres_url)
    for name, script in attacks(job_id, pruned_id).items():
        assert not attempt(worker_url, script), name
        assert log(postgres_url) == before, name
    assert query(postgres_url, "SELECT id::text FROM holdfast_jobs") == [(job_id,)]
    assert violations(postgres_url) == ()


def test_owner_in_a_trigger_is_refused_or_noticed(postgres_url: str) -> None:
    job_id, pruned_id = finished_job(postgres_url), pruned_job(postgres_url)
    before = log(postgres_url)
    found = attacks(job_id, pruned_id)
    for name in sorted(set(found) - NOTICED - POSSIBLE_FOR_OWNER):
        assert not attempt(postgres_url, found[name]), name
        assert log(postgres_url) == before, name
    for name in NOTICED:
        assert attempt(postgres_url, found[name]), name
        assert violations(postgres_url), name


SHADOWS = {
    "a temporary audit log": "CREATE TEMP TABLE holdfast_events (LIKE public.holdfast_events)",
    "a temporary table of jobs": "CREATE TEMP TABLE holdfast_jobs (LIKE public.holdfast_jobs)",
    "temporary tables on the path": """
        CREATE TEMP TABLE holdfast_events (LIKE public.holdfast_events);
        CREATE TEMP TABLE holdfast_jobs (LIKE public.holdfast_jobs);
        CREATE TEMP TABLE holdfast_meta (LIKE public.holdfast_meta);
        SET search_path = pg_temp, public""",
    "functions that come first": """
        CREATE FUNCTION public.json_typeof(text) RETURNS text LANGUAGE sql AS $$SELECT 'object'$$;
        CREATE FUNCTION public.json_build_object(text, text, text, text) RETURNS json LANGUAGE plpgsql AS $$
          BEGIN RAISE EXCEPTION 'called'; END $$;
        CREATE FUNCTION public.timezone(text, timestamptz) RETURNS timestamp LANGUAGE plpgsql AS $$
          BEGIN RAISE EXCEPTION 'called'; END $$;
        SET search_path = public, pg_catalog""",
    "operators that come first": """
        CREATE FUNCTION public.differs(text, text) RETURNS boolean LANGUAGE sql AS 'SELECT false';
        CREATE OPERATOR public.= (LEFTARG = text, RIGHTARG = text, FUNCTION = public.differs);
        CREATE FUNCTION public.differs(integer, integer) RETURNS boolean LANGUAGE sql AS 'SELECT false';
        CREATE OPERATOR public.<> (LEFTARG = integer, RIGHTARG = integer, FUNCTION = public.differs);
        SET search_path = public, pg_catalog""",
    "an empty path": "SET search_path = ''",
}  # fmt: skip
LIFE = """
    INSERT INTO public.holdfast_jobs (task, webhook) VALUES ('shadowed', '{{"url": "http://a", "on": ["cancelled"]}}');
    UPDATE public.holdfast_jobs SET priority = 2;
    UPDATE public.holdfast_jobs SET state = 'cancelled' WHERE task OPERATOR(pg_catalog.=) 'shadowed';
    DELETE FROM public.holdfast_jobs WHERE task OPERATOR(pg_catalog.=) 'shadowed';
    INSERT INTO public.holdfast_retired_histories VALUES ('{pruned_id}')"""


@pytest.mark.parametrize("name", SHADOWS)
def test_session_cannot_shadow_what_the_guards_read(postgres_url: str, plain_worker: str, name: str) -> None:
    pruned_id = pruned_job(postgres_url)
    with connect(plain_worker, autocommit=True) as connection:
        for statement in f"{SHADOWS[name]};{LIFE.format(pruned_id=pruned_id)}".split(";\n"):
            connection.execute(statement)
    events = query(postgres_url, "SELECT event FROM holdfast_events ORDER BY event")
    assert events == [("cancelled",), ("enqueued",), ("enqueued",), ("pruned",)]
    assert query(postgres_url, "SELECT task, state FROM holdfast_jobs") == [("holdfast.webhook", "pending")]
    assert query(postgres_url, "SELECT value::json ->> 'jobs' FROM holdfast_meta WHERE key = 'histories_retired'") == [
        ("1",)
    ]
    assert violations(postgres_url) == ()


@pytest.mark.parametrize("name", SHADOWS)
def test_shadows_do_not_admit_what_is_refused(postgres_url: str, plain_worker: str, name: str) -> None:
    job_id = finished_job(postgres_url)
    named = f"WHERE id OPERATOR(pg_catalog.=) '{job_id}'"
    with connect(plain_worker, autocommit=True) as connection:
        connection.execute(SHADOWS[name])
        for statement in (
            f"UPDATE public.holdfast_jobs SET state = 'running' {named}",
            f"UPDATE public.holdfast_jobs SET seq = 9 {named}",
            f"UPDATE public.holdfast_jobs SET priority = 30000 {named}",
            "INSERT INTO public.holdfast_jobs (task, payload) VALUES ('odd', '[]')",
            f"INSERT INTO public.holdfast_retired_histories VALUES ('{job_id}')",
        ):
            with pytest.raises(psycopg.Error):
                connection.execute(statement)
    assert violations(postgres_url) == ()


WATERMARKS = (
    """INSERT INTO holdfast_meta VALUES ('histories_retired', '{"through": "9", "jobs": 9, "events": 9}')
       ON CONFLICT (key) DO UPDATE SET value = excluded.value""",
    "UPDATE holdfast_meta SET value = '{}' WHERE key = 'histories_retired'",
    "UPDATE holdfast_meta SET key = 'mine' WHERE key = 'histories_retired'",
    "DELETE FROM holdfast_meta WHERE key = 'histories_retired'",
    "SELECT holdfast_note_retired('2999-01-01Z', 5, 5)",
    "UPDATE holdfast_meta SET value = '00000000-0000-7000-8000-000000000000' WHERE key = 'retired_ids_through'",
    "UPDATE holdfast_meta SET value = '{}' WHERE key = 'installed'",
)


def test_worker_cannot_move_the_watermark(postgres_url: str, worker_url: str) -> None:
    query(postgres_url, f"INSERT INTO holdfast_retired_histories VALUES ('{pruned_job(postgres_url)}')")
    query(
        worker_url, "INSERT INTO holdfast_meta VALUES ('retired_ids_through', '01890a5d-ac96-774b-bcce-b302099a8057')"
    )
    before = query(postgres_url, "SELECT * FROM holdfast_meta ORDER BY key")
    for statement in WATERMARKS:
        assert not attempt(worker_url, statement), statement
        assert query(postgres_url, "SELECT * FROM holdfast_meta ORDER BY key") == before, statement


@pytest.mark.parametrize(
    "value", ["ffffffff-ffff-7fff-bfff-ffffffffffff", "zzz", "01890A5D-AC96-774B-BCCE-B302099A8057"]
)
def test_worker_cannot_refuse_the_ids_of_the_future(plain_worker: str, value: str) -> None:
    """The value only rises: an enqueue with an id, as over HTTP, would be refused for ever."""
    insert = f"INSERT INTO holdfast_meta VALUES ('retired_ids_through', '{value}')"
    assert not attempt(plain_worker, insert)
    assert not attempt(plain_worker, f"{insert} ON CONFLICT (key) DO UPDATE SET value = excluded.value")
    with opened(plain_worker) as store:
        assert store.enqueue(NewJob(task="work", id=new_ids(1)[0])).created


def test_owner_cannot_lower_the_watermark(postgres_url: str) -> None:
    query(postgres_url, f"INSERT INTO holdfast_retired_histories VALUES ('{pruned_job(postgres_url)}')")
    before = query(postgres_url, "SELECT * FROM holdfast_meta ORDER BY key")
    for statement in WATERMARKS[1:4]:
        assert not attempt(postgres_url, statement), statement
        assert query(postgres_url, "SELECT * FROM holdfast_meta ORDER BY key") == before, statement


def test_worker_with_the_documented_rights_retires_histories(postgres_url: str, worker_url: str) -> None:
    finished_job(worker_url)
    with opened(worker_url) as store:
        assert len(store.prune(Group(Kept.JOBS, "default", State.SUCCEEDED, 0.0), 10).ids) == 1
        assert store.retire(Group(Kept.HISTORIES, "default", State.SUCCEEDED, 0.0), 10).jobs == 1
    assert log(postgres_url) == []
    assert violations(postgres_url) == ()


def test_worker_with_the_documented_rights_folds_retired_ids(
    postgres_url: str, plain_worker: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(retaining, "MAX_RETIRED_IDS", 0)
    gone = pruned_job(postgres_url)
    with opened(plain_worker) as store:
        assert store.retire(Group(Kept.HISTORIES, "default", State.SUCCEEDED, 0.0), 10).jobs == 1
    folded = "SELECT value FROM holdfast_meta WHERE key = 'retired_ids_through'"
    assert query(postgres_url, folded) == [(gone,)]


def test_history_without_an_end_is_evidence_and_stays(postgres_url: str) -> None:
    job_id = finished_job(postgres_url)
    query(postgres_url, f"SET session_replication_role = replica; DELETE FROM holdfast_jobs WHERE id = '{job_id}'")
    assert not attempt(postgres_url, f"INSERT INTO holdfast_retired_histories VALUES ('{job_id}')")
    assert violations(postgres_url) == ("no_row",)


def test_schema_of_its_own_needs_no_search_path(postgres_database: str) -> None:
    """A session with the default path names the schema, and nothing else."""
    query(postgres_database, 'CREATE SCHEMA "Jobs"')
    inside = with_options(postgres_database, search_path='"Jobs"')
    bring_up_to_date(inside)
    job_id = finished_job(inside)
    own, webhook = '"Jobs".', '{"url": "http://a", "on": ["cancelled"]}'
    for statement in (
        f"INSERT INTO {own}holdfast_jobs (task, webhook) VALUES ('a', '{webhook}')",
        f"UPDATE {own}holdfast_jobs SET state = 'cancelled' WHERE task = 'a'",
        f"DELETE FROM {own}holdfast_jobs WHERE id = '{job_id}'",
        f"INSERT INTO {own}holdfast_retired_histories VALUES ('{job_id}')",
        f"SELECT {own}holdfast_guard_partitions()",
        f"SELECT * FROM {own}holdfast_partitions()",
        f"SELECT * FROM {own}holdfast_attempts",
    ):
        query(postgres_database, statement)
    assert query(inside, "SELECT task, state FROM holdfast_jobs ORDER BY task") == [
        ("a", "cancelled"),
        ("holdfast.webhook", "pending"),
    ]
    assert violations(inside) == ()


def test_guards_belong_to_the_owner_of_the_tables(postgres_database: str) -> None:
    """Also if a superuser upgrades; and if only the tables were given to another role, `db upgrade` repairs it."""
    tables = "SELECT relname FROM pg_class WHERE starts_with(relname, 'holdfast_') AND relkind IN ('r', 'v')"
    with role_in(postgres_database) as (owner, owner_url), role_in(postgres_database) as (heir, _):
        query(postgres_database, f"GRANT CREATE ON SCHEMA public TO {owner}")
        bring_up_to_date(owner_url)
        query(postgres_database, "UPDATE holdfast_meta SET value = '{}' WHERE key = 'installed'")
        bring_up_to_date(postgres_database)
        assert query(postgres_database, OWNERS_OF_FUNCTIONS) == [(owner,)]
        for [table] in query(postgres_database, tables):
            query(postgres_database, f"ALTER TABLE {table} OWNER TO {heir}")
        assert ("holdfast_jobs", "holdfast_30_audit_insert", False) in query(postgres_database, QUESTION["postgresql"])
        bring_up_to_date(postgres_database)
        assert query(postgres_database, OWNERS_OF_FUNCTIONS) == [(heir,)]
        finished_job(postgres_database)


@pytest.mark.parametrize("end", ["'succeeded'", "'pending'", "NULL"])
def test_removed_job_is_not_given_an_end_on_sqlite(sqlite_url: str, end: str) -> None:
    """Otherwise its history could be retired, and with it the only evidence of a job that had not finished."""
    with opened(sqlite_url) as store:
        job_id = store.enqueue(NewJob(task="work")).id
    with closing(sqlite3.connect(sqlite_path(sqlite_url), isolation_level=None)) as connection:
        for trigger in ("holdfast_guard_delete", "holdfast_audit_delete"):
            connection.execute(f"DROP TRIGGER {trigger}")
        connection.execute(f"DELETE FROM holdfast_jobs WHERE id = '{job_id}'")
        for statement in (
            f"INSERT INTO holdfast_events {FORGED} VALUES ('{job_id}', 2, '2999-01-01', 'pruned', {end}, NULL, 0)",
            f"INSERT INTO holdfast_retired_histories VALUES ('{job_id}')",
        ):
            with pytest.raises(sqlite3.IntegrityError, match="holdfast"):
                connection.execute(statement)
    assert violations(sqlite_url) == ("no_row",)


def test_owner_whose_name_needs_quotes_upgrades(postgres_database: str) -> None:
    """`Team-a` as a managed service or a provisioning tool creates it."""
    owner = f"Team-{uuid.uuid4().hex[:12]}"
    query(postgres_database, f"CREATE ROLE \"{owner}\" LOGIN PASSWORD 'owner'")
    try:
        query(postgres_database, f'GRANT CREATE ON SCHEMA public TO "{owner}"')
        owner_url = make_url(postgres_database).set(username=owner, password="owner")
        bring_up_to_date(owner_url.render_as_string(hide_password=False))
        query(postgres_database, "UPDATE holdfast_meta SET value = '{}' WHERE key = 'installed'")
        bring_up_to_date(postgres_database)
        assert query(postgres_database, OWNERS_OF_FUNCTIONS) == [(owner,)]
        finished_job(owner_url.render_as_string(hide_password=False))
    finally:
        query(postgres_database, f'DROP OWNED BY "{owner}" CASCADE; DROP ROLE "{owner}"')


def test_history_that_a_policy_hides_is_no_violation(postgres_url: str) -> None:
    """With row-level security and no policy, a table looks empty to a role without BYPASSRLS."""
    finished_job(postgres_url)
    with role_in(postgres_url) as (role, url):
        for statement in (*grants(role), "ALTER TABLE holdfast_events ENABLE ROW LEVEL SECURITY"):
            query(postgres_url, statement)
        with pytest.raises(DBAPIError, match="row-level security policy for table"):
            violations(url)
        assert violations(postgres_url) == ()
