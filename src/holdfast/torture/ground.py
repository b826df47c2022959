"""The ledger of a run: a database, or a file, that is the run's alone and gone afterwards.

Nothing of the user's is touched: on a server that was named, a database of its own is made; beside an SQLite file that
was named, a file of its own; and without a name both are throwaway. What may be done to the server itself (to stop it,
to fill its disk) is done only to one that the run has started.
"""

from __future__ import annotations

import secrets
import shutil
import tempfile
from collections.abc import Callable, Mapping
from contextlib import closing, suppress
from pathlib import Path

import psycopg
from psycopg import sql
from sqlalchemy import make_url

from holdfast.domain.errors import ConfigurationError, StoreUnavailable
from holdfast.settings import mask_url
from holdfast.stores.upgrade import upgrade
from holdfast.throwaway.postgres import PostgresEndpoint, PostgresServer
from holdfast.throwaway.process import ServerStartError
from holdfast.torture.small_disk import SmallDisk
from holdfast.wiring.sql import open_database

POSTGRES_DISK_BYTES, FILE_DISK_BYTES = 2 << 30, 1 << 30  # more takes long to fill
# A commit that was acknowledged must survive an immediate stop. That the machine itself fails is not part of it, so the
# disk need not be waited for.
SERVER_SETTINGS: Mapping[str, str] = {
    "synchronous_commit": "on",
    "max_connections": "200",
    "max_wal_size": "512MB",
    "max_slot_wal_keep_size": "256MB",
}


class Ground:
    def __init__(
        self,
        url: str,
        *,
        server: PostgresServer | None = None,
        disk: SmallDisk | None = None,
        no_disk: str = "",
        remove: Callable[[], None] = lambda: None,
    ) -> None:
        self.url = url  # past every proxy
        self.server = server
        self.disk = disk
        self.no_disk = no_disk  # why there is none
        self._remove = remove

    @property
    def is_postgres(self) -> bool:
        return self.url.startswith("postgres")

    @property
    def masked(self) -> str:
        if self.server is not None:
            return "a Postgres of its own"
        return mask_url(self.url) if self.is_postgres else "an SQLite file of its own"

    @property
    def address(self) -> tuple[str, int]:
        parsed = make_url(self.url)
        return parsed.host or "127.0.0.1", parsed.port or 5432

    @property
    def observing_url(self) -> str:
        """For the run itself: writes are accepted also while the database is read-only for others."""
        if not self.is_postgres:
            return self.url
        observed = make_url(self.url).update_query_dict({"options": "-c default_transaction_read_only=off"})
        return observed.render_as_string(hide_password=False)

    def through(self, address: tuple[str, int]) -> str:
        """The same database by another way."""
        host, port = address
        return make_url(self.url).set(host=host, port=port).render_as_string(hide_password=False)

    def prepare(self) -> None:
        with closing(open_database(self.url)) as database:
            upgrade(database.engine)

    def close(self) -> None:
        if self.server is not None:
            self.server.close()
        self._remove()
        if self.disk is not None:
            self.disk.close()


def postgres_of_its_own() -> Ground:
    reason = SmallDisk.available()
    disk = SmallDisk(POSTGRES_DISK_BYTES) if reason is None else None
    try:
        server = PostgresServer(SERVER_SETTINGS, data_dir=None if disk is None else disk.path / "data")
        server.start()
    except ServerStartError as error:
        if disk is not None:
            disk.close()
        raise ConfigurationError(
            f"No Postgres could be started for this: {error}\nInstall Postgres (initdb and postgres are looked for on"
            " PATH and in /usr/lib/postgresql), or name a server: --database postgresql://…"
        ) from error
    server.create_database("torture")
    return Ground(server.url("torture"), server=server, disk=disk, no_disk=reason or "")


def postgres_at(url: str) -> Ground:
    """A database of its own on the server that the URL names."""
    endpoint, name = PostgresEndpoint(url), f"holdfast_torture_{secrets.token_hex(4)}"
    named = make_url(url).database
    own = make_url(endpoint.url(name)).render_as_string(hide_password=False)
    try:
        with psycopg.connect(_conninfo(url), autocommit=True, connect_timeout=10) as connection:
            connection.execute(sql.SQL("CREATE DATABASE {}").format(sql.Identifier(name)))
    except psycopg.errors.InsufficientPrivilege as error:
        raise ConfigurationError(
            f"The run makes a database of its own beside {named}, so that nothing of yours is touched, and this user"
            " may not: ALTER ROLE … CREATEDB, or name another user."
        ) from error
    except psycopg.OperationalError as error:
        raise StoreUnavailable(f"{mask_url(url)} cannot be reached: {error}") from error

    def remove() -> None:
        with suppress(psycopg.Error), psycopg.connect(_conninfo(url), autocommit=True) as connection:
            connection.execute(sql.SQL("DROP DATABASE IF EXISTS {} WITH (FORCE)").format(sql.Identifier(name)))

    return Ground(own, no_disk="the server is not ours", remove=remove)


def _conninfo(url: str) -> str:
    return make_url(url).set(drivername="postgresql").render_as_string(hide_password=False)


def sqlite_file(beside: Path | None = None) -> Ground:
    """Beside a file that was named: on the same disk. Else on a small one of its own, which can be filled."""
    if beside is not None:
        folder = Path(tempfile.mkdtemp(prefix="holdfast-torture-", dir=beside.parent))
        return Ground(_file_url(folder), no_disk="the disk is not ours", remove=lambda: shutil.rmtree(folder, True))
    reason = SmallDisk.available()
    if reason is not None:
        folder = Path(tempfile.mkdtemp(prefix="holdfast-torture-"))
        return Ground(_file_url(folder), no_disk=reason, remove=lambda: shutil.rmtree(folder, True))
    disk = SmallDisk(FILE_DISK_BYTES)
    return Ground(_file_url(disk.path), disk=disk)


def _file_url(folder: Path) -> str:
    return f"sqlite:///{folder / 'torture.db'}"
