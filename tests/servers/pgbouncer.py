"""A throwaway pgbouncer in transaction mode, with the configuration that docs/pgbouncer.md recommends."""

import configparser
import functools
import re
import shutil
import signal
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import psycopg
from sqlalchemy import make_url

from holdfast.throwaway.account import reachable_tree
from holdfast.throwaway.lifecycle import ThrowawayServer
from holdfast.throwaway.postgres import MAINTENANCE_DATABASE
from holdfast.throwaway.process import ServerStartError, free_port
from tests.programs import fetched
from tests.servers.waiting import DEADLINE_SECONDS

REPOSITORY = Path(__file__).parents[2]
PAGE = REPOSITORY / "docs" / "pgbouncer.md"
ADMIN_DATABASE = "pgbouncer"
# Few enough that every client meets several backends, one after the other, and has to queue for them.
POOL_SIZE = 4


class PgbouncerEndpoint:
    """A pgbouncer that answers at a URL."""

    def __init__(self, url: str) -> None:
        self._url = make_url(url)

    def through(self, direct_url: str) -> str:
        """The URL of the same database by way of the pooler."""
        url = make_url(direct_url).set(host=self._url.host, port=self._url.port)
        return url.render_as_string(hide_password=False)

    def admin(self, command: str) -> list[tuple[Any, ...]]:
        """A command of pgbouncer's own console."""
        with self._console() as console:
            return console.execute(command.encode()).fetchall()

    def cut(self, database: str) -> None:
        """End every connection to and from a database, and let it serve again."""
        with self._console() as console:
            known = [row[0] for row in console.execute("SHOW DATABASES")]
            if database in known:
                console.execute(f'KILL "{database}"'.encode())
                console.execute(f'RESUME "{database}"'.encode())

    def _console(self) -> psycopg.Connection[tuple[Any, ...]]:
        url = self._url.set(drivername="postgresql", database=ADMIN_DATABASE).render_as_string(hide_password=False)
        return psycopg.connect(url, autocommit=True, connect_timeout=int(DEADLINE_SECONDS))


class PgbouncerServer(ThrowawayServer, PgbouncerEndpoint):
    """A pgbouncer of our own on a free port of 127.0.0.1, in front of every database of one Postgres."""

    death_signal = signal.SIGKILL  # it stores nothing

    def __init__(self, postgres_url: str, settings: Mapping[str, str] | None = None) -> None:
        program = find_program()
        if program is None:
            raise ServerStartError("found no pgbouncer")
        ThrowawayServer.__init__(self)
        self.port = free_port()
        self._postgres = make_url(postgres_url)
        PgbouncerEndpoint.__init__(
            self, self._postgres.set(host="127.0.0.1", port=self.port).render_as_string(hide_password=False)
        )
        self._settings = dict(settings or {})
        self._program, self._libraries = self._reachable(program)

    def _reachable(self, program: Path) -> tuple[Path, Path | None]:
        """The program, and the folder of the libraries that came with it, where the server's account gets to them."""
        tree = program.parents[2]
        if not (tree / "lib").is_dir() or REPOSITORY not in tree.parents:
            return program, None
        reached = reachable_tree(tree, self._account, self.workdir)
        return reached / program.relative_to(tree), reached / "lib"

    @property
    def _ini(self) -> Path:
        return self.workdir / "pgbouncer.ini"

    def _prepare(self) -> None:
        users = self.workdir / "users.txt"
        users.touch(mode=0o600)
        users.write_text(f'"{self._postgres.username}" "{self._postgres.password}"\n')
        config = documented_configuration()
        config["databases"] = {"*": f"host={self._postgres.host} port={self._postgres.port}"}
        config["pgbouncer"].update(
            {
                "listen_port": str(self.port),
                "auth_file": str(users),
                "default_pool_size": str(POOL_SIZE),
                "admin_users": str(self._postgres.username),
                "unix_socket_dir": "",
                **self._settings,
            }
        )
        with self._ini.open("w") as file:
            config.write(file)
        for path in (users, self._ini):
            if self._account:
                shutil.chown(path, self._account.uid, self._account.gid)

    def _command(self) -> list[str | Path]:
        libraries = [] if self._libraries is None else [f"LD_LIBRARY_PATH={self._libraries}"]
        return [shutil.which("env") or "/usr/bin/env", *libraries, self._program, self._ini]

    def _answers(self) -> bool:
        try:
            psycopg.connect(
                self._url.set(drivername="postgresql", database=MAINTENANCE_DATABASE).render_as_string(
                    hide_password=False
                ),
                connect_timeout=int(DEADLINE_SECONDS),
            ).close()
        except psycopg.OperationalError:
            return False
        return True


def documented_configuration() -> configparser.RawConfigParser:
    """The pgbouncer.ini of the page for users."""
    found = re.search(r"<!-- tested -->\n```ini\n(.*?)```", PAGE.read_text(), re.DOTALL)
    assert found is not None, f"{PAGE.name} has no configuration that is marked as tested"
    config = configparser.RawConfigParser(delimiters=("=",))
    config.read_string(found[1])
    return config


@functools.cache
def find_program() -> Path | None:
    return fetched("pgbouncer")
