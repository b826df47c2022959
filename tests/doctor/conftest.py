"""A Postgres server that is in good order, so that every word of the doctor's about it was caused by the test."""

from __future__ import annotations

import shutil
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import psycopg
import pytest
from sqlalchemy import make_url

from holdfast.doctor import Limits, Patient, examine
from holdfast.domain.findings import Finding, Severity
from holdfast.stores.postgres_url import libpq_url
from holdfast.stores.upgrade import upgrade
from holdfast.throwaway.postgres import PostgresServer
from holdfast.wiring.sql import open_database
from tests.chaos.databases import query
from tests.servers.waiting import DEADLINE_SECONDS, wait_until

# What must arrive has time. What a test has just written is new for half an hour; the faults are an hour old.
PATIENT = Limits(
    timeout_seconds=DEADLINE_SECONDS,
    round_trip_seconds=DEADLINE_SECONDS,
    notification_seconds=DEADLINE_SECONDS,
    structure_seconds=DEADLINE_SECONDS,
    silent_worker_seconds=1800.0,
    reaper_seconds=1800.0,
)
DURABLE = {"fsync": "on", "full_page_writes": "on", "synchronous_commit": "on"}
MOST_CONNECTIONS = 40


def examined(
    url: str, folder: Path, limits: Limits | None = None, environment: dict[str, str] | None = None
) -> list[Finding]:
    patient = Patient({"database_url": url}, environment or {}, folder, limits or PATIENT)
    return list(examine(patient))


def grave(findings: list[Finding]) -> list[Finding]:
    return [finding for finding in findings if finding.severity in (Severity.WARNING, Severity.PROBLEM)]


@dataclass(frozen=True)
class Ground:
    """One database in good order; what a test plants it also takes away."""

    url: str
    folder: Path
    server: PostgresServer | None = None

    def __call__(self, statement: str) -> list[tuple[Any, ...]]:
        return query(self.url, statement)

    def examined(self, limits: Limits | None = None, **environment: str) -> list[Finding]:
        return examined(self.url, self.folder, limits, environment)

    @property
    def name(self) -> str:
        return str(make_url(self.url).database)

    @property
    def path(self) -> Path:
        return Path(self.name)

    @contextmanager
    def done(self, statement: str, undo: str) -> Iterator[None]:
        self(statement)
        try:
            yield
        finally:
            self(undo)

    @contextmanager
    def setting(self, name: str, value: str) -> Iterator[None]:
        """Of the server, while it runs."""
        before = self(f"SHOW {name}")
        try:
            self._alter(f"ALTER SYSTEM SET {name} = '{value}'", lambda: self(f"SHOW {name}") != before)
            yield
        finally:
            self._alter(f"ALTER SYSTEM RESET {name}", lambda: self(f"SHOW {name}") == before)

    def _alter(self, statement: str, done: Any) -> None:
        self(statement)
        self("SELECT pg_reload_conf()")
        wait_until(done, what=statement)

    @contextmanager
    def database_setting(self, name: str, value: str) -> Iterator[None]:
        assert self.server is not None
        elsewhere = self.server.url()  # what is set here may stand in the way of taking it back
        query(elsewhere, f'ALTER DATABASE "{self.name}" SET {name} = {value}')
        try:
            yield
        finally:
            query(elsewhere, f'ALTER DATABASE "{self.name}" RESET {name}')

    def connect(self, url: str | None = None) -> psycopg.Connection[tuple[Any, ...]]:
        return psycopg.connect(libpq_url(url or self.url))


@pytest.fixture(scope="module")
def sound_server() -> Iterator[PostgresServer]:
    settings = {**DURABLE, "max_connections": str(MOST_CONNECTIONS), "shared_buffers": "32MB"}
    with PostgresServer(settings) as server:
        server.create_database("jobs")
        database = open_database(server.url("jobs"))
        upgrade(database.engine)
        database.close()
        yield server


@pytest.fixture
def ground(sound_server: PostgresServer, tmp_path: Path) -> Ground:
    return Ground(sound_server.url("jobs"), tmp_path, sound_server)


@pytest.fixture(scope="module")
def new_file(tmp_path_factory: pytest.TempPathFactory) -> Path:
    path = tmp_path_factory.mktemp("sound") / "jobs.db"
    database = open_database(f"sqlite:///{path}")
    upgrade(database.engine)
    database.close()
    return path


@pytest.fixture
def file(new_file: Path, tmp_path: Path) -> Ground:
    path = tmp_path / "jobs.db"
    shutil.copy(new_file, path)
    return Ground(f"sqlite:///{path}", tmp_path)
