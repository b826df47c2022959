"""What a check may look at. All is opened for reading only; a store that cannot be opened is a finding, not an end."""

from __future__ import annotations

import os
import sqlite3
from collections.abc import Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import psycopg
from sqlalchemy import make_url
from sqlalchemy.exc import DBAPIError

from holdfast.domain.errors import ConfigurationError, HoldfastError, NotFound, SchemaMismatch, StoreUnavailable
from holdfast.settings import Settings, WrongSettings, read_settings
from holdfast.stores import upgrade
from holdfast.stores.database import Database
from holdfast.stores.inspection import duties, tables
from holdfast.stores.postgres import PostgresDatabase
from holdfast.wiring.sql import open_for_reading


@dataclass(frozen=True, slots=True)
class Limits:
    """From where on something is worth a word."""

    timeout_seconds: float = 10.0
    structure_seconds: float = 5.0
    clock_seconds: float = 5.0
    round_trip_seconds: float = 0.05
    open_transaction_seconds: float = 300.0
    dead_rows: int = 50_000
    dead_share: float = 0.5
    used_connections: float = 0.8
    wal_bytes: int = 64 * 1024 * 1024
    free_bytes: int = 1024 * 1024 * 1024
    notification_seconds: float = 2.0
    silent_worker_seconds: float = 90.0
    reaper_seconds: float = 60.0
    late_schedule_seconds: float = 300.0
    partitions_ahead_seconds: float = 2 * 86_400.0
    open_files: int = 1024


@dataclass(slots=True)
class Patient:
    flags: Mapping[str, Any] = field(default_factory=dict)
    environment: Mapping[str, str] = field(default_factory=lambda: os.environ)
    directory: Path = field(default_factory=Path.cwd)
    limits: Limits = field(default_factory=Limits)
    settings: Settings | None = None
    wrong_settings: tuple[str, ...] = ()
    database: Database | None = None
    unusable: str | None = None  # why there is no database although the settings name one
    is_away: bool = False  # it did not answer, rather than refuse
    missing_file: str | None = None  # an embedded store that nobody has used yet
    mismatch: str | None = None  # why the tables are not those of this Holdfast
    newer: str | None = None  # they are those of a newer one, on which this Holdfast runs
    is_blank: bool = False  # not one table of ours is there
    missing_parts: tuple[str, ...] = ()  # tables and columns that are gone, although the schema is ours

    def admit(self) -> None:
        try:
            self.settings = read_settings(self.flags, self.environment, self.directory)
        except WrongSettings as error:
            self.wrong_settings = error.problems
            return
        try:
            self.database = open_for_reading(self.settings.database_url, self.limits.timeout_seconds)
            self._look_at_the_schema(self.database)
        except NotFound as error:
            self.missing_file = str(error)
        except (HoldfastError, DBAPIError, sqlite3.DatabaseError, psycopg.Error) as error:
            self.discharge()
            self.unusable = _said(error)
            self.is_away = isinstance(error, StoreUnavailable)

    def _look_at_the_schema(self, database: Database) -> None:
        try:
            upgrade.check(database.engine)
        except SchemaMismatch as error:
            self.mismatch = str(error)
        self.newer = upgrade.describe_newer(database.engine)
        found = tables.columns(database)
        self.is_blank = not found
        revision = upgrade.current(database.engine)
        if found and revision in (None, upgrade.head()):
            unversioned = (upgrade.VERSION_TABLE,) if revision is None and "holdfast_meta" in found else ()
            self.missing_parts = (*tables.missing(found), *unversioned)

    def discharge(self) -> None:
        if self.database is not None:
            self.database.close()
        self.database = None

    @property
    def url(self) -> str:
        assert self.settings is not None
        return self.settings.database_url

    @property
    def store(self) -> Database:
        assert self.database is not None
        return self.database

    @property
    def is_postgres(self) -> bool:
        return isinstance(self.database, PostgresDatabase)

    @property
    def path(self) -> Path:
        return Path(make_url(self.url).database or "")

    def live_workers(self) -> list[duties.LiveWorker]:
        silent = self.limits.silent_worker_seconds
        return [worker for worker in duties.workers(self.store) if worker.silent_seconds < silent]


def _said(error: Exception) -> str:
    if isinstance(error, DBAPIError):
        error = error.orig if isinstance(error.orig, Exception) else error
    if isinstance(error, sqlite3.DatabaseError | psycopg.Error):
        return str(error).strip().partition("\n")[0]
    if isinstance(error, StoreUnavailable | ConfigurationError):
        return str(error)
    return f"{type(error).__name__}: {error}"
