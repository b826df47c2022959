"""How many queries an idle worker's claim makes, how claims and reports find their rows, and what a claim tells of a
job's budget."""

from collections.abc import Iterator, Sequence
from contextlib import closing
from types import SimpleNamespace

import psycopg
import pytest

from holdfast.domain.digests import token_digest
from holdfast.domain.job import Claimed, NewJob
from holdfast.domain.outcome import Report, Succeeded
from holdfast.stores import known_limits
from holdfast.stores.database import CursorTransaction
from holdfast.stores.postgres_url import libpq_url
from holdfast.stores.sql_store import SqlStore
from holdfast.stores.statements import claim as claiming
from holdfast.stores.statements import reap, settle
from holdfast.stores.statements.heartbeat import HEARTBEAT
from holdfast.wiring.sql import open_store
from tests.contract.ground import on_postgres
from tests.contract.steps import BROKEN, KILLED, claim, enqueue, enqueue_many, settle_well, start

# What an operator might type; the guard makes a transition of it.
CANCEL = "UPDATE holdfast_jobs SET state = 'cancelled' WHERE id = ANY (%s::uuid[])"


@pytest.fixture
def asked(monkeypatch: pytest.MonkeyPatch) -> list[str]:
    """The names of the statements that are run."""
    names: list[str] = []
    run = CursorTransaction.run

    def remember(transaction: CursorTransaction, statement: object, *rest: object) -> None:
        names.append(statement.name)  # type: ignore[attr-defined]
        run(transaction, statement, *rest)  # type: ignore[arg-type]

    monkeypatch.setattr(CursorTransaction, "run", remember)
    return names


@on_postgres
def test_an_idle_claim_is_one_query(store: SqlStore, asked: list[str], monkeypatch: pytest.MonkeyPatch) -> None:
    seconds = 1000.0
    monkeypatch.setattr(known_limits, "time", SimpleNamespace(monotonic=lambda: seconds))
    assert known_limits.REMEMBERED_SECONDS == 5.0
    counts = []
    for _ in range(10):  # a poll every two seconds
        assert store.claim("ann", 4, tasks=["add"]) == []
        counts.append(len(asked))
        asked.clear()
        seconds += 2
    assert counts == [2, *[1] * 9]


@on_postgres
def test_an_idle_worker_hears_of_a_limit_with_its_next_claim(
    store: SqlStore, database_url: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(known_limits, "time", SimpleNamespace(monotonic=lambda: 1000.0))  # nothing is too old
    assert store.claim("ann") == []
    with closing(open_store(database_url)) as other:
        other.set_source("shop", max_concurrent=1)
        enqueue(other, source="shop")
    assert store.claim("ann") == []  # it remembers that there are no limits, and leaves those alone
    assert len(store.claim("ann")) == 1


@on_postgres
def test_a_claim_from_very_many_lanes_looks_first_until_there_is_nothing_left(
    store: SqlStore, asked: list[str]
) -> None:
    """The ungoverned statement would read the head of every lane."""
    store.enqueue_many([NewJob(task=f"task-{number:03}") for number in range(100)] * 10)
    assert len(store.claim("ann", 100)) == 100
    asked.clear()
    taken = 100
    while claimed := store.claim("ann", 100):
        taken += len(claimed)
    assert taken == 1_000
    assert "claim" not in asked
    asked.clear()
    assert store.claim("ann", 100) == []
    assert set(asked) <= {"claim", "sources.limits_exist"}


@pytest.fixture
def session(database_url: str) -> Iterator[psycopg.Connection]:
    with psycopg.connect(libpq_url(database_url)) as session:
        yield session


def plans_of(session: psycopg.Connection, statement: str, *parameters: object) -> str:
    """Of everything that runs inside it."""
    plans: list[str] = []
    session.add_notice_handler(lambda notice: plans.append(notice.message_primary or ""))
    session.execute("LOAD 'auto_explain'")
    session.execute("SET auto_explain.log_min_duration = 0")
    session.execute("SET auto_explain.log_nested_statements = on")
    session.execute("SET client_min_messages = log")
    session.execute(statement, parameters)
    return "\n".join(plans)


@pytest.mark.new_tables
@on_postgres
def test_the_audit_of_a_batch_is_no_nested_loop_whatever_came_first(
    store: SqlStore, session: psycopg.Connection
) -> None:
    """A session keeps the plan of the trigger's first call, which was for one row, under settings that forbid joins by
    hash."""
    jobs = enqueue_many(store, 50)
    session.execute("SET enable_hashjoin = off")
    session.execute(CANCEL, [jobs[:1]])
    plans = plans_of(session, CANCEL, jobs[1:])
    assert "Insert on holdfast_events" in plans
    assert "Hash Join" in plans
    assert "Nested Loop" not in plans


@pytest.mark.new_tables
@on_postgres
def test_sources_are_locked_and_counted_by_index_also_where_nothing_is_yet(
    store: SqlStore, session: psycopg.Connection
) -> None:
    """A session keeps these plans, and the tables grow."""
    store.set_source("shop", max_concurrent=1)
    plans = plans_of(session, "SELECT * FROM holdfast_lock_sources(%s)", '["shop"]')
    assert "Index Scan using holdfast_sources_pkey" in plans
    assert "using holdfast_jobs_source_running" in plans
    assert "Seq Scan" not in plans


@pytest.mark.new_tables
@on_postgres
def test_rows_that_are_named_are_looked_up_by_their_ids_before_anything_is_known_of_the_table(
    store: SqlStore, session: psycopg.Connection
) -> None:
    """The index of running jobs looks empty then, and is full of those that have ended since."""
    session.execute("SET plan_cache_mode = force_generic_plan")
    for _ in range(5):
        jobs = claim_many(store, enqueue_many(store, 100))
        store.settle([Report(job.job_id, job.attempt, job.lease_token, Succeeded()) for job in jobs])
    jobs = claim_many(store, enqueue_many(store, 100))
    tokens = [token_digest(job.lease_token) for job in jobs]
    nothing = [None] * len(jobs)
    given = ([job.job_id for job in jobs], [job.attempt for job in jobs], tokens, nothing, nothing)
    succeed = "SELECT holdfast_succeed(%s::uuid[], %s::int[], %s, %s::json[], %s::json[])"
    plans = {"succeed": plans_of(session, succeed, *given)}
    assert "Index Scan using holdfast_jobs_pkey" in plans["succeed"]
    for statement in (HEARTBEAT, settle.SETTLE, settle.STANDING, reap.EXPIRED_THESE, claiming.HELD_JOBS):
        explained = session.execute("EXPLAIN " + statement.driver_sql("postgresql"), {"rows": "[]", "ids": "[]"})
        plans[statement.name] = "\n".join(line for (line,) in explained)
    assert [name for name, plan in plans.items() if "holdfast_jobs_running" in plan] == []


def claim_many(store: SqlStore, jobs: Sequence[str]) -> list[Claimed]:
    claimed = store.claim("ann", len(jobs))
    assert len(claimed) == len(jobs)
    return claimed


def test_a_claim_tells_of_the_budget(store: SqlStore) -> None:
    claimed = start(store, max_attempts=7, max_crashes=5)
    assert (claimed.failures, claimed.crashes, claimed.max_attempts, claimed.max_crashes) == (0, 0, 7, 5)
    settle_well(store, claimed, KILLED)
    enqueue(store, "other", priority=-1)
    again = claim(store, tasks=["add"])
    assert (again.attempt, again.failures, again.crashes) == (2, 0, 1)
    settle_well(store, again, BROKEN)
    assert store.job(again.job_id).failures == 1
