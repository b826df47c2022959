"""docs/scale.md: an audit log in partitions, made and kept with the statements of the page."""

from __future__ import annotations

import json
import threading
import uuid
from collections.abc import Callable, Iterator
from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import Any

import psycopg
import pytest
from psycopg.errors import CheckViolation, LockNotAvailable

from holdfast.domain.errors import Conflict
from holdfast.domain.feed import AuditFilter
from holdfast.domain.findings import Severity
from holdfast.domain.lifecycle import Event, State
from holdfast.domain.outcome import Succeeded
from holdfast.domain.retention import Group, Kept
from holdfast.maintenance.verify import Verdict, verify
from holdfast.stores.histories import Histories
from holdfast.stores.ids import new_ids
from holdfast.stores.inspection import postgres
from holdfast.stores.migrations import ahead
from holdfast.stores.references import References
from holdfast.stores.sql_store import SqlStore
from holdfast.stores.upgrade import check, upgrade
from holdfast.throwaway.postgres import PostgresEndpoint
from tests.chaos.conftest import postgres_template
from tests.chaos.databases import connect, opened, query
from tests.contract.steps import enqueue, history, job_in, settle_well, start
from tests.doctor.conftest import examined
from tests.examples.scale_page import MIDNIGHT, PAGE, STATEMENTS, UNTIL, partition, statement, type_in
from tests.pooler.test_contract import CONTRACT, run_contract
from tests.servers.shared import URL_VARIABLES
from tests.servers.waiting import wait_until

__all__ = ["postgres_template"]

INDEXES = {"holdfast_events_pkey", "holdfast_events_at", "holdfast_events_pruned", "holdfast_events_seldom"}
FIRST, DEFAULT = "holdfast_events_first", "holdfast_events_default"
NEXT = f"holdfast_events_{UNTIL:%Y%m%d}_0000"
STORAGE = ["autovacuum_vacuum_insert_scale_factor=0.05"]
FAR_AWAY = "ffffffff-1111-4111-8111-111111111111"  # no UUIDv7: somebody made it up


@pytest.fixture
def url(postgres_server: PostgresEndpoint, postgres_template: str) -> Iterator[str]:
    name = f"scale_{uuid.uuid4().hex}"
    postgres_server.create_database(name, postgres_template)
    yield postgres_server.url(name)
    postgres_server.drop_database(name)


@pytest.fixture
def store(url: str) -> Iterator[SqlStore]:
    """Whatever a test did, in the end the log proves that every promise was kept."""
    with opened(url) as store:
        yield store
        verdict = verified(store)
        assert verdict.ok, verdict.violations


@pytest.fixture
def partitioned(url: str, store: SqlStore) -> str:
    """The store was there before: it goes on with the plans and prepared statements it has."""
    for state in State:
        job_in(store, state)
    partition(url)
    return url


def verified(store: SqlStore) -> Verdict:
    engine = store.database.engine
    return verify(Histories(engine), references=References(engine))


def id_of(moment: datetime) -> str:
    """As another process would have made it then."""
    stamp = f"{int(moment.timestamp() * 1000):012x}"
    noise = uuid.uuid4().hex
    return str(uuid.UUID(f"{stamp}7{noise[13:]}"))


def partitions(url: str) -> list[str]:
    return [name for [name] in query(url, "SELECT name::text FROM holdfast_partitions()")]


def partition_of(url: str, job_id: str) -> str:
    [(name,)] = query(url, f"SELECT DISTINCT tableoid::regclass::text FROM holdfast_events WHERE job_id = '{job_id}'")
    return str(name)


def prune(store: SqlStore) -> int:
    """All that has succeeded, however young."""
    return len(store.prune(Group(Kept.JOBS, "default", State.SUCCEEDED, 0.0), 500).ids)


def drop(url: str, name: str, keep: str = "0") -> int:
    [(histories,)] = query(url, f"SELECT holdfast_drop_partition('{name}', '{keep}')")
    return int(histories)


def watermark(url: str) -> dict[str, object]:
    [(value,)] = query(url, "SELECT value FROM holdfast_meta WHERE key = 'histories_retired'")
    found: dict[str, object] = json.loads(value)
    return found


# the page


def test_every_statement_of_the_page_has_a_name() -> None:
    assert PAGE.count("```sql") == len(STATEMENTS)


def test_the_first_id_of_a_moment_parts_the_ids_made_before_from_those_made_since(url: str) -> None:
    [made] = new_ids(1)
    moment = datetime.fromtimestamp(int(made.replace("-", "")[:12], 16) / 1000, UTC)
    [(found,)] = query(
        url,
        f"SELECT ARRAY[holdfast_first_id('{moment}')::text, '{made}',"
        f" holdfast_first_id(timestamptz '{moment}' + interval '1 ms')::text]",
    )
    assert found == sorted(found)


# conversion


def test_a_log_in_use_becomes_the_first_partition_under_the_feet_of_an_open_store(url: str, store: SqlStore) -> None:
    running = start(store)
    ended = job_in(store, State.FAILED)
    reader = f"reader_{uuid.uuid4().hex}"
    query(url, f"CREATE ROLE {reader}; GRANT SELECT ON holdfast_events TO {reader}")
    query(url, "CREATE VIEW failures AS SELECT job_id, at FROM holdfast_events WHERE event = 'failed'")
    before = [(event.seq, event.at, event.event) for event in store.events(ended)]
    assert type_in(url, "strays") == [(0,)]
    partition(url)
    assert [(event.seq, event.at, event.event) for event in store.events(ended)] == before
    settle_well(store, running, Succeeded({"sum": 3}))
    assert history(store, running.job_id) == ["enqueued", "claimed", "succeeded"]
    assert [attempt.outcome for attempt in store.attempts(running.job_id)] == ["succeeded"], (
        "the view reads the new log"
    )
    later = enqueue(store, id=id_of(UNTIL + timedelta(days=1)))
    job_in(store, State.FAILED, id=id_of(UNTIL + timedelta(days=2)))
    assert (partition_of(url, running.job_id), partition_of(url, later)) == (FIRST, NEXT)
    assert query(url, "SELECT count(*) FROM failures") == [(2,)], "and so do the operator's own views"
    assert query(url, f"SELECT has_table_privilege('{reader}', 'holdfast_events', 'SELECT')") == [(True,)]
    query(url, f"DROP OWNED BY {reader}; DROP ROLE {reader}")


def test_an_empty_log_is_converted_by_the_same_statements(url: str, store: SqlStore) -> None:
    partition(url)
    assert partition_of(url, job_in(store, State.SUCCEEDED)) == FIRST
    assert partitions(url)[:2] == [FIRST, NEXT]
    assert partitions(url)[-1] == DEFAULT
    assert verified(store).jobs == 1


def test_every_partition_has_the_indexes_and_settings_of_the_log(partitioned: str, store: SqlStore) -> None:
    found = postgres.indexes(store.database)
    assert {name for name in found if name.startswith("holdfast_events")} == INDEXES
    assert all(found.values()), "and each is whole: every partition has its own"
    for name in partitions(partitioned):
        definitions = query(partitioned, f"SELECT indexdef FROM pg_indexes WHERE tablename = '{name}'")
        assert len(definitions) == len(INDEXES)
        assert any("pages_per_range='16', autosummarize='on'" in text for [text] in definitions), "of the BRIN"
        assert query(partitioned, f"SELECT reloptions FROM pg_class WHERE relname = '{name}'") == [(STORAGE,)]
    query(partitioned, "ANALYZE holdfast_events")
    wait_until(lambda: live_rows(store) > 0, what="the rows of its partitions are counted as the log's")


def live_rows(store: SqlStore) -> int:
    return {table.name: table.live for table in postgres.tables(store.database)}["holdfast_events"]


@pytest.mark.parametrize("bounded", [True, False])
def test_nothing_is_read_under_the_lock_if_the_bound_was_proven_before(
    url: str, store: SqlStore, bounded: bool
) -> None:
    enqueue(store)
    said: list[str] = []
    with connect(url, autocommit=True) as connection:
        connection.add_notice_handler(lambda notice: said.append(str(notice.message_primary)))
        connection.execute("SET client_min_messages = debug1")
        for name in ["bound", "convert"] if bounded else ["convert"]:
            for part in statement(name).split(";\n") if name == "bound" else [statement(name)]:
                connection.execute(part.encode())
    implied = f'partition constraint for table "{FIRST}" is implied by existing constraints'
    assert (implied in said) is bounded
    assert query(url, "SELECT count(*) FROM pg_constraint WHERE conname = 'holdfast_events_range'") == [(0,)]


def test_until_the_conversion_ids_beyond_the_bound_are_refused_and_nothing_is_left_of_them(
    url: str, store: SqlStore
) -> None:
    type_in(url, "bound")
    with pytest.raises(Exception, match="holdfast_events_range"):
        enqueue(store, id=FAR_AWAY)
    type_in(url, "convert")
    enqueue(store, id=FAR_AWAY)
    assert partition_of(url, FAR_AWAY) == DEFAULT


def test_histories_under_ids_that_somebody_made_up_are_moved_to_the_default_partition(
    url: str, store: SqlStore
) -> None:
    job_in(store, State.SUCCEEDED, id=FAR_AWAY)
    usual = job_in(store, State.SUCCEEDED)
    assert type_in(url, "strays") == [(3,)]
    type_in(url, "convert")
    assert (partition_of(url, FAR_AWAY), partition_of(url, usual)) == (DEFAULT, FIRST)
    assert history(store, FAR_AWAY) == ["enqueued", "claimed", "succeeded"]


def test_a_conversion_that_does_not_get_its_lock_changes_nothing(url: str, store: SqlStore) -> None:
    with connect(url) as writer:
        writer.execute("INSERT INTO holdfast_jobs (task) VALUES ('slow')")
        with pytest.raises(LockNotAvailable):
            type_in(url, "convert")
    assert query(url, "SELECT relkind::text FROM pg_class WHERE relname = 'holdfast_events'") == [("r",)]
    type_in(url, "convert")
    assert verified(store).jobs == 1


# guards

ATTACKS = {
    "insert": "INSERT INTO {} (job_id, seq, at, event, attempt) VALUES ('{}', 9, now(), 'claimed', 1)",
    "update": "UPDATE {} SET worker = 'mallory'",
    "delete": "DELETE FROM {}",
    "truncate": "TRUNCATE {}",
}


@pytest.mark.parametrize("attack", ATTACKS)
def test_no_statement_changes_the_log_by_its_name_or_by_that_of_a_partition(partitioned: str, attack: str) -> None:
    refused_everywhere(partitioned, attack)


def refused_everywhere(url: str, attack: str) -> None:
    ids = dict(query(url, "SELECT name::text, first FROM holdfast_partitions()"))
    ids[DEFAULT] = ids["holdfast_events"] = uuid.UUID(FAR_AWAY)
    for name, job_id in ids.items():
        with pytest.raises(CheckViolation, match=f"{attack.upper()} of {name} is refused"):
            query(url, ATTACKS[attack].format(name, job_id))


def test_an_upgrade_puts_new_guards_on_the_partitions_too(partitioned: str, store: SqlStore) -> None:
    query(partitioned, "UPDATE holdfast_meta SET value = 'older' WHERE key = 'installed'")
    # As an earlier Holdfast may have had it: by another rule, and on a partition of a name that is not ours.
    query(partitioned, f"ALTER TABLE {NEXT} RENAME TO somebody_elses_name")
    query(
        partitioned,
        "DROP TRIGGER holdfast_update ON somebody_elses_name;"
        " CREATE TRIGGER holdfast_update BEFORE UPDATE ON somebody_elses_name FOR EACH STATEMENT WHEN (false)"
        " EXECUTE FUNCTION holdfast_refuse_statement()",
    )
    upgrade(store.database.engine)
    check(store.database.engine)
    for attack in ATTACKS:
        refused_everywhere(partitioned, attack)
    settle_well(store, start(store), Succeeded({"sum": 3}))


@pytest.mark.parametrize("harm", ["DROP TRIGGER {1} ON {0}", "ALTER TABLE {0} DISABLE TRIGGER {1}"])
def test_a_partition_without_its_guards_is_noticed_and_mended(
    partitioned: str, store: SqlStore, harm: str, tmp_path: Path
) -> None:
    query(partitioned, harm.format(FIRST, "holdfast_delete"))
    assert "holdfast_delete on holdfast_events" in said_of(partitioned, tmp_path)["guards"]
    upgrade(store.database.engine)
    assert "triggers are in place" in said_of(partitioned, tmp_path)["guards"]
    refused_everywhere(partitioned, "delete")


def said_of(url: str, folder: Path) -> dict[str, str]:
    """The doctor's words, by what was looked at."""
    return {finding.check: finding.found for finding in examined(url, folder)}


# everyday


def test_the_doctor_finds_schema_triggers_and_indexes_in_order(partitioned: str, tmp_path: Path) -> None:
    said = said_of(partitioned, tmp_path)
    assert "which is what this Holdfast needs" in said["schema"]
    assert "triggers are in place" in said["guards"]
    assert "indexes can be used" in said["indexes"]
    assert "reach 3" in said["partitions"], "five weeks less a few days"


def test_search_roll_up_and_retention_read_all_partitions(partitioned: str, store: SqlStore) -> None:
    days = [MIDNIGHT - timedelta(days=40), UNTIL + timedelta(hours=1)]
    ids = [job_in(store, State.SUCCEEDED, id=id_of(day)) for day in days] + [
        job_in(store, State.SUCCEEDED, id=FAR_AWAY)
    ]
    found = store.audit(AuditFilter(events=(Event.SUCCEEDED,)), limit=3)
    assert {transition.job_id for transition in found.items} == set(ids)
    assert len(store.audit(AuditFilter(events=(Event.FAILED,))).items) == 1, "by the index of what seldom happens"
    assert store.roll_up("ann") is not None
    assert prune(store) == 4
    assert retire(store) == 4
    assert watermark(partitioned)["jobs"] == 4
    assert query(partitioned, f"SELECT count(*) FROM {DEFAULT}") == [(0,)]


def retire(store: SqlStore) -> int:
    return store.retire(Group(Kept.HISTORIES, "default", State.SUCCEEDED, 0.0), 500).jobs


def touched(url: str, statement: str, **parameters: object) -> set[str]:
    """The tables and partitions that it really read."""
    with connect(url) as connection:
        connection.execute("SET enable_seqscan = off")
        explained = connection.execute(f"EXPLAIN (ANALYZE, FORMAT JSON) {statement}".encode(), parameters)
        [(plan,)] = explained.fetchall()
    return set(_read(plan[0]["Plan"]))


def _read(node: dict[str, Any]) -> Iterator[str]:
    if node["Actual Loops"] and "Relation Name" in node:
        yield str(node["Relation Name"])
    for child in node.get("Plans", ()):
        yield from _read(child)


def test_a_question_about_a_job_reads_its_partition_alone(partitioned: str, store: SqlStore) -> None:
    job_id = job_in(store, State.SUCCEEDED)
    for asked in (
        f"SELECT * FROM holdfast_events WHERE job_id = '{job_id}' ORDER BY seq",
        f"SELECT * FROM holdfast_attempts WHERE job_id = '{job_id}'",
    ):
        assert touched(partitioned, asked) == {FIRST}
    by_time = "SELECT * FROM holdfast_events WHERE at > now() - interval '1 hour'"
    assert touched(partitioned, by_time) == set(partitions(partitioned)), "time is not what it is parted by"


def test_a_later_index_is_built_beside_the_work_on_each_partition(
    partitioned: str, store: SqlStore, monkeypatch: pytest.MonkeyPatch
) -> None:
    engine = store.database.engine
    monkeypatch.setattr(ahead, "INDEXES", {"9999": (("holdfast_events_worker", "holdfast_events", "(worker)"),)})
    ahead.build(engine, "0000", 30.0)
    built = "SELECT count(*) FROM pg_class WHERE relname LIKE 'holdfast_events_worker_%'"
    assert query(partitioned, built) == [(len(partitions(partitioned)),)]
    with engine.begin() as connection:
        ahead.create(connection, "9999")
    assert postgres.indexes(store.database)["holdfast_events_worker"] is True
    assert query(partitioned, built) == [(len(partitions(partitioned)),)], "those were taken in, none was made anew"
    ahead.build(engine, "0000", 30.0)  # again: nothing to do


@pytest.mark.long
def test_the_whole_contract_holds_with_partitions(postgres_server: PostgresEndpoint) -> None:
    servers = {URL_VARIABLES["postgres"]: postgres_server.url()}
    assert run_contract(servers, CONTRACT, way="--partitioned") > 700


# partitions ahead, and behind


def test_partitions_are_made_four_weeks_ahead_and_asking_again_makes_none(partitioned: str) -> None:
    made = partitions(partitioned)
    assert len(made) == 2 + 4, "the first, one for every week, and the default one"
    assert all(row == (None,) for row in type_in(partitioned, "ahead"))
    assert partitions(partitioned) == made


def test_the_doctor_warns_before_the_last_one_ends(url: str, tmp_path: Path) -> None:
    assert "partitions" not in said_of(url, tmp_path), "a log that is one table needs none"
    type_in(url, "convert", MIDNIGHT + timedelta(days=1))
    [found] = [finding for finding in examined(url, tmp_path) if finding.check == "partitions"]
    assert (found.severity, "holdfast_add_partition" in found.advice) == (Severity.WARNING, True)
    type_in(url, "ahead", MIDNIGHT + timedelta(days=1))
    [found] = [finding for finding in examined(url, tmp_path) if finding.check == "partitions"]
    assert found.severity is Severity.OK


def test_if_nobody_made_one_rows_go_to_the_default_partition_until_somebody_does(url: str, store: SqlStore) -> None:
    type_in(url, "convert")
    late = job_in(store, State.SUCCEEDED, id=id_of(UNTIL + timedelta(days=1)))
    running = start(store, id=id_of(UNTIL + timedelta(days=1)))
    job_in(store, State.SUCCEEDED, id=FAR_AWAY)
    assert partition_of(url, late) == DEFAULT
    [(_, _, events)] = type_in(url, "in_default")
    assert events == 8
    type_in(url, "ahead")
    assert (partition_of(url, late), partition_of(url, running.job_id)) == (NEXT, NEXT)
    assert partition_of(url, FAR_AWAY) == DEFAULT, "which no partition will ever take"
    settle_well(store, running, Succeeded({"sum": 3}))
    assert history(store, running.job_id) == ["enqueued", "claimed", "succeeded"]
    for attack in ATTACKS:
        refused_everywhere(url, attack)


# dropping


@pytest.fixture
def old(url: str, store: SqlStore) -> str:
    """A partition of two jobs of last month; beside it one of today, and one whose id somebody made up."""
    type_in(url, "convert", MIDNIGHT - timedelta(days=60))
    query(url, f"SELECT holdfast_add_partition('{MIDNIGHT - timedelta(days=40)}', '{MIDNIGHT - timedelta(days=33)}')")
    query(url, f"SELECT holdfast_add_partition('{MIDNIGHT - timedelta(days=33)}', '{MIDNIGHT + timedelta(days=9)}')")
    for job_id in (*LAST_MONTH, FAR_AWAY, None):
        job_in(store, State.SUCCEEDED, id=job_id)
    return f"holdfast_events_{MIDNIGHT - timedelta(days=40):%Y%m%d}_0000"


LAST_MONTH = [id_of(MIDNIGHT - timedelta(days=days)) for days in (39, 35)]


def test_a_partition_goes_with_whole_histories_and_leaves_a_trace(url: str, store: SqlStore, old: str) -> None:
    query(
        url,
        "INSERT INTO holdfast_refusals (job_id, attempt, verb, reason) VALUES"
        f" ('{LAST_MONTH[0]}', 1, 'complete', 'lease_lost'), ('{FAR_AWAY}', 1, 'complete', 'lease_lost')",
    )
    query(
        url,
        "INSERT INTO holdfast_schedule_ticks (schedule, planned_at, fired_at, outcome, job_id)"
        f" VALUES ('hourly', now(), now(), 'fired', '{LAST_MONTH[0]}')",
    )
    assert prune(store) == 4
    ends = store.events(LAST_MONTH[1])[-1].at
    assert drop(url, old) == 2
    assert old not in partitions(url)
    assert [history(store, job_id) for job_id in LAST_MONTH] == [[], []]
    assert history(store, FAR_AWAY)[-1] == "pruned", "what lies in the default partition stays"
    assert query(url, "SELECT job_id::text FROM holdfast_refusals") == [(FAR_AWAY,)]
    trace = watermark(url)
    assert (trace["jobs"], trace["events"]) == (2, 8)
    assert datetime.fromisoformat(str(trace["through"])) >= ends
    verdict = verified(store)
    assert verdict.ok, "though a tick speaks of a job that is gone"
    assert verdict.retired is not None
    assert retire(store) == 2
    assert (watermark(url)["jobs"], watermark(url)["events"]) == (4, 16), "both ways out add to one trace"


def test_what_was_dropped_is_not_made_anew_the_next_night(url: str, store: SqlStore, old: str) -> None:
    prune(store)
    drop(url, old)
    type_in(url, "ahead", MIDNIGHT - timedelta(days=40))
    assert old not in partitions(url)


def test_a_dropped_range_takes_new_jobs_again(url: str, store: SqlStore, old: str) -> None:
    prune(store)
    drop(url, old)
    again = job_in(store, State.SUCCEEDED, id=id_of(MIDNIGHT - timedelta(days=34)))
    assert partition_of(url, again) == DEFAULT


def test_ids_of_a_dropped_partition_stay_refused(url: str, store: SqlStore, old: str) -> None:
    since = int((MIDNIGHT - timedelta(days=37)).timestamp() * 1000)
    made_up = str(uuid.UUID(f"{since:012x}4{uuid.uuid4().hex[13:]}"))
    job_in(store, State.SUCCEEDED, id=made_up)
    assert partition_of(url, made_up) == old
    assert prune(store) == 5
    assert drop(url, old) == 3
    assert (watermark(url)["jobs"], watermark(url)["events"]) == (3, 12)
    assert query(url, "SELECT job_id::text FROM holdfast_retired_histories") == [(made_up,)]
    for used in (made_up, *LAST_MONTH):
        with pytest.raises(Conflict, match="use a new one"):
            job_in(store, State.SUCCEEDED, id=used)


def test_converting_adding_and_dropping_go_unnoticed_by_those_who_work(url: str, store: SqlStore) -> None:
    done: list[str] = []
    failed: list[Exception] = []
    stop = threading.Event()

    def work() -> None:
        with opened(url) as own:
            while not stop.is_set():
                try:
                    done.append(job_in(own, State.SUCCEEDED))
                    job_in(own, State.SUCCEEDED, id=id_of(MIDNIGHT - timedelta(days=50)))
                except Exception as error:
                    failed.append(error)
                    return

    def typed_in(name: str) -> bool:
        """It waits two seconds for a lock. As the page says: try again."""
        try:
            type_in(url, name)
        except LockNotAvailable:
            return False
        return True

    def insist(name: str) -> None:
        wait_until(lambda: typed_in(name), what=f"{name} gets its lock")

    def goes_on(enough: int) -> Callable[[], bool]:
        return lambda: bool(failed) or len(done) >= enough

    crew = [threading.Thread(target=work) for _ in range(3)]
    for thread in crew:
        thread.start()
    for step in (
        lambda: type_in(url, "bound"),
        lambda: insist("convert"),
        lambda: insist("ahead"),
        lambda: prune(store),
        lambda: drop(url, f"holdfast_events_{UNTIL + timedelta(days=14):%Y%m%d}_0000"),
        lambda: insist("ahead"),
    ):
        step()
        wait_until(goes_on(len(done) + 5), what="work goes on")
    stop.set()
    for thread in crew:
        thread.join()
    assert failed == []
    assert {partition_of(url, job_id) for job_id in done} == {FIRST}


@pytest.mark.parametrize("state", State)
def test_a_partition_stays_while_a_job_of_its_range_does(url: str, store: SqlStore, old: str, state: State) -> None:
    kept = job_in(store, state, id=id_of(MIDNIGHT - timedelta(days=37)))
    if state is not State.SUCCEEDED:
        prune(store)
    before = query(url, "SELECT job_id, seq FROM holdfast_events ORDER BY 1, 2")
    with pytest.raises(CheckViolation, match=f"{old} has the history of job .*, which has not been pruned"):
        drop(url, old)
    assert query(url, "SELECT job_id, seq FROM holdfast_events ORDER BY 1, 2") == before
    assert query(url, "SELECT count(*) FROM holdfast_meta WHERE key = 'histories_retired'") == [(0,)]
    [left_over] = [row[4:] for row in type_in(url, "partitions") if row[0] == old]
    assert left_over[0] is not None, "the page's list names one"
    assert str(left_over[1]) in (kept, *LAST_MONTH)
    assert type_in(url, "drop") == []


def test_a_partition_stays_for_as_long_as_it_is_to_be_kept(url: str, store: SqlStore, old: str) -> None:
    prune(store)
    with pytest.raises(CheckViolation, match="which is not 90 days ago"):
        drop(url, old, "90 days")


def test_what_the_page_drops_every_night_are_partitions_that_are_over(url: str, store: SqlStore, old: str) -> None:
    prune(store)
    asked = statement("drop").replace("90 days", "30 days")
    [(first,), (second,)] = query(url, asked)
    assert first == f"SELECT holdfast_drop_partition('{FIRST}', '30 days')", "there is nothing in it"
    assert query(url, first) == [(0,)]
    assert second == f"SELECT holdfast_drop_partition('{old}', '30 days')"
    with pytest.raises(CheckViolation, match="which is not 30 days ago"):
        query(url, second)  # its jobs are old, but were pruned just now


@pytest.mark.parametrize("name", [DEFAULT, "holdfast_events", "holdfast_jobs"])
def test_nothing_but_a_partition_with_a_range_is_dropped(url: str, old: str, name: str) -> None:
    assert old
    with pytest.raises(CheckViolation, match=f"{name} is no partition of holdfast_events for a range of ids"):
        drop(url, name)


def test_evidence_is_not_dropped(url: str, store: SqlStore, old: str) -> None:
    """A history that does not end in `pruned`, and whose job is gone, is one that somebody has tampered with."""
    prune(store)
    forged = id_of(MIDNIGHT - timedelta(days=36))
    with connect(url) as connection:
        connection.execute("SET LOCAL session_replication_role = replica")
        connection.execute(
            "INSERT INTO holdfast_events (job_id, seq, at, event, to_state, attempt)"
            f" VALUES ('{forged}', 1, now(), 'enqueued', 'pending', 0)".encode()
        )
    assert not verified(store).ok
    with pytest.raises(CheckViolation, match="has 3 histories, of which 2 end in pruned"):
        drop(url, old)
    with connect(url) as connection:
        connection.execute("SET LOCAL session_replication_role = replica")
        connection.execute(f"DELETE FROM holdfast_events WHERE job_id = '{forged}'".encode())


def test_a_snapshot_from_before_cannot_drop(url: str, old: str) -> None:
    with connect(url) as connection:
        connection.isolation_level = psycopg.IsolationLevel.REPEATABLE_READ
        with pytest.raises(psycopg.errors.RaiseException, match="READ COMMITTED"):
            connection.execute(f"SELECT holdfast_drop_partition('{old}', '0')".encode())


def test_a_drop_waits_for_whoever_is_writing_and_not_for_ever(url: str, store: SqlStore, old: str) -> None:
    prune(store)
    dropped: list[int] = []
    thread = threading.Thread(target=lambda: dropped.append(drop(url, old)))
    waiting = "SELECT count(*) FROM pg_stat_activity WHERE query LIKE '%drop_partition%' AND wait_event_type = 'Lock'"
    with connect(url) as writer:
        writer.execute("INSERT INTO holdfast_jobs (task) VALUES ('slow')")
        thread.start()
        wait_until(lambda: query(url, f"{waiting} AND pid <> pg_backend_pid()") == [(1,)], what="it waits")
        # It gives way after less than a second, so that others are not held up, and tries again.
        enqueue(store)
        assert dropped == []
    thread.join()
    assert dropped == [2]


def test_while_a_partition_is_counted_everybody_goes_on_working(url: str, store: SqlStore, old: str) -> None:
    prune(store)
    with connect(url) as counting:
        counting.execute(f"LOCK TABLE {old} IN SHARE MODE".encode())
        job_in(store, State.SUCCEEDED)
        assert len(store.events(FAR_AWAY)) == 4
        assert verified(store).ok
