"""docs/operator-sql.md: every statement on the page, executed on both databases, and what it has to find there."""

from __future__ import annotations

import re
import uuid
from collections.abc import Iterator
from datetime import UTC, datetime
from decimal import Decimal
from typing import Any

import pytest
from sqlalchemy import create_engine

from holdfast.stores.postgres import open_postgres
from holdfast.stores.sql_store import SqlStore
from holdfast.stores.sqlite import open_sqlite
from holdfast.throwaway.postgres import PostgresEndpoint
from tests.chaos.conftest import postgres_template
from tests.chaos.databases import assert_verified, opened
from tests.contract.ground import DIALECTS, Clock, HostClock, ServerClock
from tests.examples.operator_ground import Ground, lay
from tests.examples.shell import ROOT

__all__ = ["postgres_template"]

Rows = list[dict[str, Any]]

PAGE = (ROOT / "docs" / "operator-sql.md").read_text(encoding="utf-8")


_FOUND = re.findall(r"<!-- sql: (\w+)(?: \((\w+)\))? -->\n```sql\n(.*?)\n```", PAGE, re.DOTALL)


def statements(dialect: str) -> dict[str, str]:
    """The page's statements by name, as this database reads them."""
    return {name: statement for name, form, statement in _FOUND if form in ("", dialect)}


class Asked:
    """The ground, and an operator's own connection to it."""

    def __init__(self, dialect: str, url: str, ground: Ground) -> None:
        self.dialect = dialect
        self.ground = ground
        self.jobs = ground.jobs
        self._engine = create_engine(url)

    def __call__(self, statement: str) -> Rows:
        with self._engine.connect() as connection:
            if self.dialect == "postgres":  # plan as for large tables, of which nothing is read whole without need
                for way in ("seqscan", "hashjoin", "mergejoin"):
                    connection.exec_driver_sql(f"SET enable_{way} = off")
            found = connection.exec_driver_sql(statement, execution_options={"no_parameters": True})
            return [{name: _plain(value) for name, value in row.items()} for row in found.mappings()]

    def of_page(self, name: str, job: str = "flaky") -> str:
        return statements(self.dialect)[name].replace("JOB-ID", self.jobs[job])

    def read_as_a_whole(self, statement: str) -> set[str]:
        """The large tables of which its plan reads every row."""
        if self.dialect == "sqlite":
            steps = [str(row["detail"]) for row in self(f"EXPLAIN QUERY PLAN {statement}")]
            scanned = (re.fullmatch(r"SCAN (\w+)(?: USING INDEX (\w+))?", step) for step in steps)
            return {LARGE[scan[1]] for scan in scanned if scan and scan[1] in LARGE and scan[2] not in SMALL}
        [row] = self(f"EXPLAIN (FORMAT JSON) {statement}")
        return set(_whole(row["QUERY PLAN"][0]["Plan"]))

    def close(self) -> None:
        self._engine.dispose()


# The large tables under the names that the page's statements, and the view of attempts, give them.
LARGE = {
    "holdfast_jobs": "holdfast_jobs",
    "j": "holdfast_jobs",
    "r": "holdfast_jobs",
    "holdfast_events": "holdfast_events",
    "started": "holdfast_events",
    "ended": "holdfast_events",
}
# Indexes that hold few rows, or, in the order that is asked for, just the first of many.
SMALL = ("holdfast_jobs_running", "holdfast_jobs_source_running", "sqlite_autoindex_holdfast_jobs_1")


def _whole(node: dict[str, Any], limited: bool = False) -> Iterator[str]:
    name, index = node.get("Relation Name"), node.get("Index Name")
    conditional = "Index Cond" in node or node["Node Type"] == "Bitmap Heap Scan"
    if name in LARGE and not conditional and index not in SMALL and not (index and limited):
        yield name
    for child in node.get("Plans", ()):
        yield from _whole(child, limited=node["Node Type"] == "Limit")


def _plain(value: Any) -> Any:
    return str(value) if isinstance(value, uuid.UUID) else float(value) if isinstance(value, Decimal) else value


@pytest.fixture(scope="module", params=DIALECTS)
def asked(request: pytest.FixtureRequest) -> Iterator[Asked]:
    """One ground for all of them: they only read."""
    dialect = str(request.param)
    url = str(request.getfixturevalue(f"{dialect}_operated"))
    clock: Clock = HostClock() if dialect == "sqlite" else ServerClock(url)
    database = open_sqlite(url, clock=clock.now) if dialect == "sqlite" else open_postgres(url)
    store = SqlStore(database)
    asked = Asked(dialect, url, lay(store, clock))
    yield asked
    asked.close()
    clock.close()
    store.close()
    assert_verified(url)


@pytest.fixture(scope="module")
def sqlite_operated(tmp_path_factory: pytest.TempPathFactory) -> str:
    url = f"sqlite:///{tmp_path_factory.mktemp('operated') / 'holdfast.db'}"
    with opened(url):
        return url


@pytest.fixture(scope="module")
def postgres_operated(postgres_server: PostgresEndpoint, postgres_template: str) -> Iterator[str]:
    name = f"operated_{uuid.uuid4().hex}"
    postgres_server.create_database(name, postgres_template)
    yield postgres_server.url(name)
    postgres_server.drop_database(name)


def picked(rows: Rows, *columns: str) -> list[tuple[Any, ...]]:
    return [tuple(row[column] for column in columns) for row in rows]


# What each statement must say of the ground: some of its columns, and all of its rows.
EXPECTED: dict[str, tuple[tuple[str, ...], list[tuple[Any, ...]]]] = {
    "longest_running": (("task", "lease_owner"), [("crawl", "zed"), ("price", "ann"), ("visit", "ann")]),
    "depth": (
        ("queue", "waiting", "due", "running"),
        [
            ("mail", 3, 3, 0),
            ("shop", 4, 4, 0),
            ("dig", 1, 1, 0),
            ("slow", 1, 1, 0),
            ("default", 1, 1, 1),
            ("price", 1, 0, 2),
        ],
    ),
    "expired": (("task", "lease_owner", "attempt"), [("crawl", "zed", 1)]),
    "not_claimed": (
        ("queue", "source", "task", "jobs", "reason"),
        [
            ("mail", None, "mail", 3, "queue paused"),
            ("shop", "shop", "buy", 4, "source paused by breaker"),
            ("dig", "archive", "dig", 1, "source off"),
            ("slow", None, "backlog", 1, "backlog"),
        ],
    ),
    "source_health": (
        ("name", "state", "failure_streak", "breaker_threshold", "max_concurrent", "in_use", "waiting"),
        [
            ("archive", "off", 0, 5, None, 0, 1),
            ("market", "open for work", 0, 5, 3, 2, 1),
            ("shop", "paused by breaker", 2, 2, 2, 0, 4),
        ],
    ),
    "source_events": (
        ("source", "event"),
        [("shop", "breaker_opened"), *((name, "limits_changed") for name in ("market", "archive", "shop"))],
    ),
    "inside_sources": (("source", "task", "lease_owner", "own"), [("market", "visit", "ann", False)]),
    "same_spec": (("task", "jobs", "replays", "succeeded"), [("report", 3, 1, 3)]),
    "overlapping": (("job_id",), []),
    "rewritten_records": (("scope", "source", "strength", "attempt"), [("coin-1", "market", 0.9, 1)]),
    "several_sources": (("scope", "sources", "weakest", "strongest"), [("coin-1", 2, 0.1, 0.9)]),
    "per_worker": (("worker", "running"), [("ann", 2), ("zed", 1)]),
    "finished_per_worker": (
        ("worker", "succeeded", "failed", "lost"),
        [("ann", 2, 0, 0), ("bob", 0, 4, 0), ("zed", 0, 0, 1)],
    ),
    "workers": (("id", "state", "slots"), [("ann", "idle", 2)]),
    "last_hour": (
        ("task", "enqueued", "started", "succeeded", "failed", "in_vain"),
        [
            ("crawl", 4, 6, 2, 1, 2),
            ("buy", 4, 2, 0, 0, 2),
            *((task, count, 0, 0, 0, 0) for task, count in (("backlog", 1), ("dig", 1), ("mail", 3))),
        ],
    ),
    "failed_by_code": (("task", "code", "jobs"), [("crawl", "bad_input", 1)]),
    "errors_by_code": (("code", "attempts", "jobs"), [("http_500", 2, 2), ("bad_input", 1, 1), ("timeout", 1, 1)]),
    "wasted": (
        ("task", "attempts", "in_vain", "seconds_in_vain"),
        [("crawl", 5, 3, 91.3), ("buy", 2, 2, 4.0), ("report", 3, 0, 0.0)],
    ),
    "timeline": (
        ("attempt", "worker", "duration_ms", "outcome", "error"),
        [(1, "bob", 30_000, "retry_scheduled", "timeout"), (2, "ann", 4_000, "succeeded", None)],
    ),
    "history": (
        ("seq", "event", "worker"),
        [
            (1, "enqueued", None),
            (2, "claimed", "bob"),
            (3, "retry_scheduled", "bob"),
            (4, "claimed", "ann"),
            (5, "succeeded", "ann"),
        ],
    ),
    "refusals": (("attempt", "verb", "reason", "worker", "count"), [(1, "complete", "lease_lost", "zed", 1)]),
    "cache": (("source", "live", "expired"), [("market", 2, 0), ("shop", 0, 1)]),
    "last_ticks": (("name", "outcome", "state"), [("tidy", "fired", "pending"), ("yearly", None, None)]),
}
# Those that name jobs: by what became of them, in the order of the rows.
JOBS = {
    "recent": ("later", "visiting", "pricing"),
    "longest_running": ("abandoned", "pricing", "visiting"),
    "expired": ("abandoned",),
    "successes_of_spec": ("reported", "reported again", "replayed"),
    "replays": ("replayed",),
}
ABOUT = {
    "successes_of_spec": "reported again",
    "replays": "reported",
}  # the job that is asked about; else the flaky one


def test_the_page_has_both_forms_of_every_statement_and_each_is_looked_at() -> None:
    assert set(statements("sqlite")) == set(statements("postgres")) == {*EXPECTED, *JOBS} == set(costs())
    assert PAGE.count("```sql") == len(_FOUND), "there is no statement without a name"


@pytest.mark.parametrize("name", sorted(statements("sqlite")))
def test_a_statement_finds_what_is_there(asked: Asked, name: str) -> None:
    rows = asked(asked.of_page(name, ABOUT.get(name, "flaky")))
    if name in EXPECTED:
        columns, expected = EXPECTED[name]
        assert picked(rows, *columns) == expected
    if name in JOBS:
        expected_ids = [asked.jobs[job] for job in JOBS[name]]
        assert [row["id"] for row in rows][: len(expected_ids)] == expected_ids


def test_the_level_of_a_bucket_is_what_the_engine_says(asked: Asked) -> None:
    taken_at = asked.ground.clock.now()
    levels = {row["name"]: row["tokens"] for row in asked(asked.of_page("source_health"))}
    back = (datetime.now(UTC) - taken_at).total_seconds() / 60
    assert (levels["archive"], levels["shop"]) == (None, None), "no rate, no bucket"
    # Full when the day began, two were taken, and one comes back a minute.
    assert 3.0 <= levels["market"] <= min(3.0 + back + 0.1, 5.0)


def test_attempts_that_overlap_would_be_found(asked: Asked) -> None:
    """The real log has none, and takes none; so the statement is shown one that has."""
    forged = [
        ("one after the other", 1, "ann", "2026-01-01 10:00", "2026-01-01 10:01"),
        ("one after the other", 2, "bob", "2026-01-01 10:01", "2026-01-01 10:02"),
        ("overlapping", 1, "ann", "2026-01-01 10:00", "2026-01-01 10:05"),
        ("overlapping", 2, "bob", "2026-01-01 10:04", "2026-01-01 10:06"),
        ("never ended", 1, "ann", "2026-01-01 10:00", None),
        ("never ended", 2, "bob", "2026-01-01 10:09", None),
    ]
    values = ", ".join(str(row).replace("None", "NULL") for row in forged)
    shadow = f"WITH holdfast_attempts (job_id, attempt, worker, started_at, finished_at) AS (VALUES {values}) "
    rows = asked(shadow + asked.of_page("overlapping"))
    assert sorted(picked(rows, "job_id", "attempt", "previous_worker", "worker")) == [
        ("never ended", 2, "ann", "bob"),
        ("overlapping", 2, "ann", "bob"),
    ]


# What they cost


def costs() -> dict[str, str]:
    """What the page's last table says of each statement."""
    table = re.findall(r"^\| (`.*?`) \| (.*?) \|$", PAGE[PAGE.index("## What they cost") :], re.MULTILINE)
    return {name: cost for names, cost in table for name in re.findall(r"`(\w+)`", names)}


@pytest.mark.parametrize("name", sorted(costs()))
def test_what_the_page_calls_cheap_reads_no_large_table_as_a_whole(asked: Asked, name: str) -> None:
    whole = asked.read_as_a_whole(asked.of_page(name))
    if costs()[name].startswith("cheap"):
        assert whole == set()
    if name in ("same_spec", "overlapping"):
        assert whole == {"holdfast_jobs" if name == "same_spec" else "holdfast_events"}, "and we would notice"
