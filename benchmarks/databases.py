"""Fresh databases for a benchmark: Postgres at full durability on a server of our own, SQLite on a file."""

from __future__ import annotations

import tempfile
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from pathlib import Path

from holdfast.stores import upgrade
from holdfast.stores.sql_store import SqlStore
from holdfast.throwaway.postgres import PostgresServer
from holdfast.wiring.sql import open_database, open_store

# The server's defaults where durability is concerned; memory and WAL as a small production box would have them.
DURABLE = {
    "fsync": "on",
    "synchronous_commit": "on",
    "full_page_writes": "on",
    "shared_buffers": "1GB",
    "max_wal_size": "8GB",
}


class Databases:
    """Hands out one fresh store after the other."""

    def __init__(self, folder: Path, server: PostgresServer | None) -> None:
        self._folder = folder
        self._server = server
        self._made = 0

    @property
    def kinds(self) -> list[str]:
        return ["sqlite", *(["postgres"] if self._server else [])]

    @property
    def server(self) -> PostgresServer:
        assert self._server is not None
        return self._server

    @contextmanager
    def store(self, kind: str) -> Iterator[SqlStore]:
        with self.empty(kind) as url:
            if kind == "postgres":
                upgrade.upgrade(open_database(url).engine)
            store = open_store(url)
            try:
                yield store
            finally:
                store.close()

    @contextmanager
    def empty(self, kind: str) -> Iterator[str]:
        """The URL of a new database without tables."""
        self._made += 1
        name = f"bench_{self._made}"
        if kind == "postgres":
            self.server.create_database(name)
        try:
            yield f"sqlite:///{self._folder / name}.db" if kind == "sqlite" else self.server.url(name)
        finally:
            self._remove(kind, name)

    def _remove(self, kind: str, name: str) -> None:
        """Some of them are large."""
        if kind != "sqlite":
            self.server.drop_database(name)
            return
        for file in self._folder.glob(f"{name}.db*"):
            file.unlink()


@contextmanager
def databases(*, postgres: bool = True, settings: Mapping[str, str] | None = None) -> Iterator[Databases]:
    """`settings` of the server come on top of those of DURABLE."""
    with tempfile.TemporaryDirectory(prefix="holdfast-bench-") as folder:
        server = PostgresServer({**DURABLE, **(settings or {})}) if postgres else None
        if server is not None:
            server.start()
        try:
            yield Databases(Path(folder), server)
        finally:
            if server is not None:
                server.close()


def settle_down(store: SqlStore) -> None:
    """Give a measurement a clean start: statistics known, nothing left to flush."""
    with store.database.engine.connect() as connection:
        if store.database.dialect == "postgresql":
            connection.exec_driver_sql("VACUUM ANALYZE holdfast_jobs")
            connection.exec_driver_sql("CHECKPOINT")
        else:
            connection.exec_driver_sql("PRAGMA wal_checkpoint(TRUNCATE)")


def switch_guards_off(store: SqlStore) -> None:
    """For measuring what the guards cost: no audit rows are written after this."""
    with store.database.engine.connect() as connection:
        if store.database.dialect == "postgresql":
            connection.exec_driver_sql("ALTER TABLE holdfast_jobs DISABLE TRIGGER USER")
            return
        names = connection.exec_driver_sql("SELECT name FROM sqlite_master WHERE type = 'trigger'").scalars().all()
        for name in names:
            connection.exec_driver_sql(f"DROP TRIGGER {name}")
