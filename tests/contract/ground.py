"""What the suite stands on: a clock that can be moved, and a hand that types SQL past the engine."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from datetime import UTC, datetime, timedelta
from typing import Any, Protocol

import pytest
from sqlalchemy import Connection, Engine, NullPool, create_engine, text
from sqlalchemy.exc import IntegrityError

from holdfast.stores.schema import metadata

DIALECTS = ("sqlite", "postgres")
FAR = "2099-01-01T00:00:00.000000Z"  # a moment in the form both dialects read

on_postgres = pytest.mark.parametrize("database_url", ["postgres"], indirect=True)
on_sqlite = pytest.mark.parametrize("database_url", ["sqlite"], indirect=True)


class Clock(Protocol):
    """The store's clock. It runs on its own; a test moves it instead of sleeping."""

    def move(self, seconds: float) -> None: ...

    def now(self) -> datetime: ...


class HostClock:
    """Of an SQLite store, which is handed the time of its host."""

    def __init__(self) -> None:
        self._offset = timedelta()

    def move(self, seconds: float) -> None:
        self._offset += timedelta(seconds=seconds)

    def now(self) -> datetime:
        return datetime.now(UTC) + self._offset


class ServerClock:
    """Of a Postgres store, whose every time comes from `holdfast_now()`."""

    def __init__(self, engine: Engine) -> None:
        self._engine = engine
        self._seconds = 0.0

    def move(self, seconds: float) -> None:
        self._seconds += seconds
        with self._engine.begin() as connection:
            connection.exec_driver_sql(
                "CREATE OR REPLACE FUNCTION holdfast_now() RETURNS timestamptz LANGUAGE sql VOLATILE AS"
                f" 'SELECT clock_timestamp() + interval ''{self._seconds} seconds'''"
            )

    def now(self) -> datetime:
        with self._engine.connect() as connection:
            moment: datetime = connection.exec_driver_sql("SELECT holdfast_now()").scalar_one()
        return moment.astimezone(UTC)


class ByHand:
    """SQL as an operator types it, on connections that the store knows nothing of."""

    def __init__(self, url: str) -> None:
        self.engine = create_engine(url, poolclass=NullPool)
        self.is_postgres = self.engine.dialect.name == "postgresql"

    def __call__(self, statement: str, **parameters: Any) -> list[tuple[Any, ...]]:
        with self.engine.begin() as connection:
            return run(connection, statement, **parameters)

    def count(self, table: str, where: str = "true") -> int:
        return int(self(f"SELECT count(*) FROM {table} WHERE {where}")[0][0])

    def everything(self) -> dict[str, list[str]]:
        """All rows of all tables, as text."""
        return {name: sorted(map(repr, self(f"SELECT * FROM {name}"))) for name in metadata.tables}

    @contextmanager
    def refused(self, saying: str = "holdfast") -> Iterator[None]:
        """The database itself says no, and nothing has changed."""
        before = self.everything()
        with pytest.raises(IntegrityError, match=saying):
            yield
        assert self.everything() == before


def run(connection: Connection, statement: str, **parameters: Any) -> list[tuple[Any, ...]]:
    if parameters:
        result = connection.execute(text(statement), parameters)
    else:
        result = connection.exec_driver_sql(statement, execution_options={"no_parameters": True})
    return [tuple(row) for row in result] if result.returns_rows else []
