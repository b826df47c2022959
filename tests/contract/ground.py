"""What the suite stands on: a clock that can be moved, and a hand that types SQL past the engine."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from datetime import UTC, datetime, timedelta
from typing import Any, Protocol

import pytest
from sqlalchemy import Connection, Engine, create_engine, text
from sqlalchemy.exc import IntegrityError

from holdfast.stores.schema import metadata

DIALECTS = ("sqlite", "postgres")
FAR = "2099-01-01T00:00:00.000000Z"  # a moment in the form both dialects read

on_postgres = pytest.mark.parametrize("database_url", ["postgres"], indirect=True)
on_sqlite = pytest.mark.parametrize("database_url", ["sqlite"], indirect=True)


class Clock(Protocol):
    """The store's clock. It runs until a test takes hold of it; then it moves when the test moves it, and only then."""

    def hold(self) -> None: ...

    def move(self, seconds: float) -> None: ...

    def now(self) -> datetime: ...

    def close(self) -> None: ...


def _this_millisecond() -> datetime:
    moment = datetime.now(UTC)
    return moment.replace(microsecond=moment.microsecond // 1000 * 1000)


class HostClock:
    """Of an SQLite store, which is handed the time of its host."""

    def __init__(self) -> None:
        self._held: datetime | None = None

    def hold(self) -> None:
        self._held = _this_millisecond()

    def move(self, seconds: float) -> None:
        assert self._held is not None
        self._held += timedelta(seconds=seconds)

    def now(self) -> datetime:
        return self._held or datetime.now(UTC)

    def close(self) -> None:
        pass


class ServerClock:
    """Of a Postgres store, whose every time comes from `holdfast_now()`."""

    def __init__(self, url: str, kept: Engine | None = None) -> None:
        """`kept`: somebody's connections, which commit by themselves."""
        self._is_own = kept is None
        self._engine = kept or create_engine(url, isolation_level="AUTOCOMMIT")
        self._held: datetime | None = None

    def hold(self) -> None:
        self._set(_this_millisecond())

    def move(self, seconds: float) -> None:
        assert self._held is not None
        self._set(self._held + timedelta(seconds=seconds))

    def now(self) -> datetime:
        assert self._held is not None
        return self._held

    def close(self) -> None:
        if self._is_own:
            self._engine.dispose()

    def _set(self, moment: datetime) -> None:
        self._held = moment
        with self._engine.connect() as connection:
            connection.exec_driver_sql(
                "CREATE OR REPLACE FUNCTION holdfast_now() RETURNS timestamptz LANGUAGE sql VOLATILE AS"
                f" $$SELECT timestamptz '{moment.isoformat()}'$$"
            )


class ByHand:
    """SQL as an operator types it, on connections that the store knows nothing of."""

    def __init__(self, url: str, kept: Engine | None = None) -> None:
        self.engine = kept or create_engine(url)
        self.is_postgres = self.engine.dialect.name == "postgresql"

    def __call__(self, statement: str, **parameters: Any) -> list[tuple[Any, ...]]:
        with self.engine.begin() as connection:
            return run(connection, statement, **parameters)

    def count(self, table: str, where: str = "true") -> int:
        return int(self(f"SELECT count(*) FROM {table} WHERE {where}")[0][0])

    def everything(self) -> dict[str, list[str]]:
        """All rows of all tables, as text."""
        with self.engine.begin() as connection:
            return {name: sorted(map(repr, run(connection, f"SELECT * FROM {name}"))) for name in metadata.tables}

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


@contextmanager
def failing(by_hand: ByHand, event: str, condition: str, code: str) -> Iterator[None]:
    """On Postgres: a statement that meets such a row (`DELETE ON holdfast_jobs`) fails with this SQLSTATE."""
    raised = f"RAISE EXCEPTION USING ERRCODE = '{code}', MESSAGE = 'failing'"
    by_hand(f"CREATE FUNCTION failing() RETURNS trigger LANGUAGE plpgsql AS $$ BEGIN {raised}; END $$")
    by_hand(f"CREATE TRIGGER failing BEFORE {event} FOR EACH ROW WHEN ({condition}) EXECUTE FUNCTION failing()")
    try:
        yield
    finally:
        by_hand("DROP FUNCTION failing() CASCADE")
