"""What a claim costs does not depend on what it may not take: counted in the buffers that Postgres touches for it.

Each crowd is a thousand due jobs and something beside them: many more due jobs, jobs of next week at the highest
priority, jobs of a closed source, jobs of a task that the worker does not know, jobs that ended long ago. A claim is
run through the verb itself, with every statement explained (the admission of sources and queues among them), in a
transaction that is rolled back.
"""

import uuid
from collections.abc import Iterable, Iterator
from contextlib import contextmanager, suppress
from dataclasses import dataclass
from typing import Any, NamedTuple

import psycopg
import pytest

from holdfast.stores import known_limits
from holdfast.stores.database import CursorTransaction, Parameters, Row
from holdfast.stores.postgres import PostgresDatabase, open_postgres
from holdfast.stores.sql_store import SqlStore
from holdfast.stores.statements.words import POSTGRES, Statement
from holdfast.stores.verbs.claiming import Claiming
from holdfast.throwaway.postgres import PostgresEndpoint
from tests.chaos.databases import connect, query
from tests.servers.waiting import wait_until

BATCHES = (10, 100)
FEW_DUE = 1_000
MOST_TIMES = 2.0
QUEUE = "work"
KNOWN_TASK = "known"
CLOSED_SOURCE = "closed"

READY_INDEX = "holdfast_jobs_ready"
OTHER_SESSIONS = """
    SELECT count(*) FROM pg_stat_activity
    WHERE datname = current_database() AND backend_type = 'client backend' AND pid <> pg_backend_pid()"""
READ_FROM_END_TO_END = "SELECT seq_tup_read FROM pg_stat_user_tables WHERE relname = 'holdfast_jobs'"

Plan = dict[str, Any]


class Explained(NamedTuple):
    statement: str
    plan: Plan

    @property
    def is_claim(self) -> bool:
        return self.statement.startswith("claim")

    @property
    def buffers(self) -> int:
        return int(self.plan["Plan"]["Shared Hit Blocks"] + self.plan["Plan"]["Shared Read Blocks"])

    def nodes(self) -> Iterator[Plan]:
        waiting = [self.plan["Plan"]]
        while waiting:
            node = waiting.pop()
            yield node
            waiting += node.get("Plans", ())


@dataclass(frozen=True)
class Kind:
    """Jobs of one kind, as columns and their values for the n-th."""

    columns: str
    values: str


DUE = Kind("task, priority", f"'{KNOWN_TASK}', n % 3")
FUTURE = Kind("task, priority, run_after", f"'{KNOWN_TASK}', 100, now() + interval '7 days' + n * interval '1 second'")
CLOSED = Kind("task, priority, source", f"'{KNOWN_TASK}', 2, '{CLOSED_SOURCE}'")
UNKNOWN = Kind("task, priority", "'unknown', 2")
FINISHED = Kind(
    "task, state, transition, seq, attempt, finished_at", f"'{KNOWN_TASK}', 'succeeded', 'succeeded', 3, 1, now()"
)


@dataclass(frozen=True)
class Scale:
    many_due: tuple[int, ...]
    future: int
    closed: int
    unknown: int
    finished: int

    def crowds(self) -> dict[str, list[tuple[Kind, int]]]:
        few = (DUE, FEW_DUE)
        return {
            f"{FEW_DUE:,} due": [few],
            **{f"{count:,} due": [(DUE, count)] for count in self.many_due},
            f"{self.future:,} of next week": [few, (FUTURE, self.future)],
            f"{self.closed:,} of a closed source": [few, (CLOSED, self.closed)],
            f"{self.unknown:,} of an unknown task": [few, (UNKNOWN, self.unknown)],
            f"{self.finished:,} finished": [few, (FINISHED, self.finished)],
        }


OUTDATED = {
    "never analysed": [],
    "analysed when none was due": [(FINISHED, FEW_DUE)],
}
SUITE = Scale(many_due=(30_000,), future=30_000, closed=10_000, unknown=10_000, finished=50_000)
SMALL = Scale(many_due=(10_000,), future=10_000, closed=10_000, unknown=10_000, finished=10_000)
FULL = Scale(many_due=(100_000, 1_000_000), future=500_000, closed=100_000, unknown=100_000, finished=1_000_000)


def insert(url: str, kind: Kind, count: int) -> None:
    """Without triggers, so without histories: no claim reads them."""
    statement = f"""
        INSERT INTO holdfast_jobs (queue, {kind.columns})
        SELECT '{QUEUE}', {kind.values} FROM generate_series(1, {count}) n"""
    with connect(url) as connection:
        connection.execute("SET LOCAL session_replication_role = replica")
        connection.execute(statement.encode())


def fill(url: str, crowd: Iterable[tuple[Kind, int]]) -> None:
    query(url, "ALTER TABLE holdfast_jobs SET (autovacuum_enabled = off)")
    for kind, count in crowd:
        insert(url, kind, count)
        if kind is CLOSED:
            query(url, f"INSERT INTO holdfast_sources (name, enabled) VALUES ('{CLOSED_SOURCE}', false)")


class ExplainedTransaction(CursorTransaction):
    """Keeps the plan of every statement: it is explained, which runs it, taken back, and run."""

    def __init__(self, cursor: psycopg.Cursor[tuple[Any, ...]]) -> None:
        super().__init__(cursor, POSTGRES, None)
        self.explained: list[Explained] = []

    def rows(self, statement: Statement, parameters: Parameters | None = None) -> list[Row]:
        text = f"EXPLAIN (ANALYZE, BUFFERS, FORMAT JSON) {statement.driver_sql(POSTGRES)}"
        self.cursor.execute("SAVEPOINT explained")
        self.cursor.execute(text, parameters or {}, prepare=False)
        [[[plan]]] = self.cursor.fetchall()
        self.cursor.execute("ROLLBACK TO SAVEPOINT explained")
        self.explained.append(Explained(statement.name, plan))
        return super().rows(statement, parameters)


class ExplainingDatabase(PostgresDatabase):
    def __init__(self, url: str) -> None:
        super().__init__(open_postgres(url).engine)
        self.explained: list[Explained] = []

    @contextmanager
    def transaction(self, settings: Statement | None = None) -> Iterator[CursorTransaction]:
        with suppress(psycopg.Rollback), super().transaction() as real:
            if settings is not None:
                real.run(settings)
            transaction = ExplainedTransaction(real.cursor)
            yield transaction
            self.explained += transaction.explained
            raise psycopg.Rollback

    statement = transaction


def explain_claim(url: str, limit: int) -> list[Explained]:
    """Of a worker that has been at it for a while: it does not ask at every claim whether there are limits at all."""
    database = ExplainingDatabase(url)
    claiming = Claiming(database)
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(known_limits, "REMEMBERED_SECONDS", 3600.0)  # a claim that is explained may take longer than 5 s
        for _ in range(2):
            database.explained.clear()
            claiming.claim("worker", limit, [QUEUE], [KNOWN_TASK])
    database.close()
    return database.explained


def assert_walks_the_index(explained: Explained) -> None:
    """Candidates come from the ready index and are then found by their address. Nothing is compiled, and no row of the
    table is looked at only to be left aside."""
    assert "JIT" not in explained.plan
    for node in explained.nodes():
        reads_jobs = node.get("Relation Name") == "holdfast_jobs" and node["Node Type"] != "ModifyTable"
        if reads_jobs and node["Actual Loops"] > 0:
            assert node["Node Type"] in ("Index Scan", "Index Only Scan", "Tid Scan"), (explained.statement, node)
            assert node.get("Rows Removed by Filter", 0) == 0, (explained.statement, node)
            if explained.statement == "claim":
                assert node.get("Index Name", READY_INDEX) == READY_INDEX, node


def buffers_of_claims(url: str) -> list[int]:
    """For each batch size, of all the statements that a claim consists of."""
    figures: list[int] = []
    for limit in BATCHES:
        explained = explain_claim(url, limit)
        for each in explained:
            assert_walks_the_index(each)
        assert [each.plan["Plan"]["Actual Rows"] for each in explained if each.is_claim] == [limit]
        figures.append(sum(each.buffers for each in explained))
    return figures


def assert_about_the_same(figures: dict[str, list[int]]) -> None:
    table = "\n".join(f"{name:>36}: {counts}" for name, counts in figures.items())
    for counts in zip(*figures.values(), strict=True):
        assert max(counts) <= MOST_TIMES * min(counts), f"buffers of a claim of {BATCHES}\n{table}"
    print(f"\nbuffers of a claim of {BATCHES}\n{table}")


@pytest.mark.parametrize(
    "scale",
    [
        pytest.param(SUITE, id="in the suite"),
        pytest.param(FULL, id="in full", marks=[pytest.mark.long, pytest.mark.timeout(1800)]),
    ],
)
def test_claim_touches_about_as_many_buffers_in_every_crowd(
    scale: Scale, postgres_server: PostgresEndpoint, postgres_template: str
) -> None:
    figures: dict[str, list[int]] = {}
    for name, crowd in scale.crowds().items():
        with crowded_database(postgres_server, postgres_template) as url:
            fill(url, crowd)
            query(url, "VACUUM ANALYZE")
            figures[name] = buffers_of_claims(url)
    assert_about_the_same(figures)


@contextmanager
def crowded_database(server: PostgresEndpoint, template: str) -> Iterator[str]:
    name = f"crowd_{uuid.uuid4().hex}"
    server.create_database(name, template)
    yield server.url(name)
    server.drop_database(name)


def test_claim_needs_no_fresh_statistics(postgres_server: PostgresEndpoint, postgres_template: str) -> None:
    """Right after a bulk insert the planner still believes what it last saw, and the claim is as cheap as ever."""
    figures: dict[str, list[int]] = {}
    for name, crowd in SMALL.crowds().items():
        for seen, analysed in OUTDATED.items():
            with crowded_database(postgres_server, postgres_template) as url:
                fill(url, [(FINISHED, FEW_DUE)])  # so that no table is so small that to read all of it is best
                fill(url, analysed)
                if analysed:
                    query(url, "VACUUM ANALYZE")
                fill(url, crowd)
                figures[f"{name}, {seen}"] = buffers_of_claims(url)
    assert_about_the_same(figures)


def test_worker_that_polled_an_empty_queue_is_ready_for_a_rush(postgres_url: str) -> None:
    """No plan is kept from when the table was empty: the first claims after the rush read no table from end to end."""
    fill(postgres_url, [])
    query(postgres_url, "VACUUM ANALYZE")
    store = SqlStore(open_postgres(postgres_url, pool_size=1))
    for _ in range(20):
        assert store.claim("worker", 10, [QUEUE], [KNOWN_TASK]) == []
    insert(postgres_url, DUE, 10_000)
    for _ in range(10):
        assert len(store.claim("worker", 10, [QUEUE], [KNOWN_TASK])) == 10
    store.close()
    # A session hands in its statistics when it ends, a moment after it was closed.
    wait_until(lambda: query(postgres_url, OTHER_SESSIONS) == [(0,)], what="the worker's session has ended")
    assert query(postgres_url, READ_FROM_END_TO_END) == [(0,)]
