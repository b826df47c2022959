"""A standby of a throwaway Postgres, and a planned switchover between the two."""

from __future__ import annotations

import shutil
from collections.abc import Mapping

import psycopg
from sqlalchemy import make_url

from holdfast.throwaway.postgres import PostgresEndpoint, PostgresServer
from tests.servers.waiting import wait_until


class Standby(PostgresServer):
    """A copy of a primary that is stopped while it is made; after `start` it streams from it."""

    def __init__(self, primary: PostgresServer, settings: Mapping[str, str] | None = None) -> None:
        super().__init__(settings)
        self._primary = primary
        self._password = primary._password
        PostgresEndpoint.__init__(self, make_url(primary.url()).set(port=self.port))

    def _prepare(self) -> None:
        if (self.data_dir / "PG_VERSION").exists():
            return
        assert not self._primary.is_running
        shutil.copytree(self._primary.data_dir, self.data_dir)
        follow(self, self._primary)
        with (self.data_dir / "postgresql.auto.conf").open("a") as config:
            config.writelines(f"{name} = '{value}'\n" for name, value in self._all_settings().items())
        if self._account:
            for path in (self.data_dir, *self.data_dir.rglob("*")):
                shutil.chown(path, self._account.uid, self._account.gid)

    def promote(self) -> None:
        with psycopg.connect(_conninfo(self), autocommit=True) as connection:
            connection.execute("SELECT pg_promote()")


def follow(server: PostgresServer, primary: PostgresServer) -> None:
    """At its next start the server is a standby of the other."""
    conninfo = make_url(primary.url())
    with (server.data_dir / "postgresql.auto.conf").open("a") as config:
        config.write(
            f"primary_conninfo = 'host=127.0.0.1 port={conninfo.port} user={conninfo.username}"
            f" password={conninfo.password} application_name=follower'\n"
        )
    (server.data_dir / "standby.signal").touch()


def wait_until_streaming(primary: PostgresServer) -> None:
    def streams() -> bool:
        with psycopg.connect(_conninfo(primary)) as connection:
            return connection.execute(
                "SELECT count(*) FROM pg_stat_replication WHERE state = 'streaming'"
            ).fetchone() == (1,)

    wait_until(streams, what="the standby streams")


def switch_over(primary: PostgresServer, standby: Standby) -> None:
    """Planned: nothing is lost, and the former primary comes back as a standby of the new one."""
    primary.stop()
    standby.promote()
    follow(primary, standby)
    primary.start()


def _conninfo(server: PostgresServer) -> str:
    return make_url(server.url()).set(drivername="postgresql").render_as_string(hide_password=False)
