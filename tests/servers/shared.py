"""One server of each kind for a whole test run, started when the first test asks for it.

With xdist the tests run in worker processes, but a worker ends when *it* has no
more tests. So the servers belong to the controller. A worker asks it for a URL
over a local socket; the controller serves one request after the other, so that
two workers that ask at once get the same server.
"""

import os
import secrets
import threading
from collections.abc import Callable, Mapping
from contextlib import suppress
from multiprocessing import AuthenticationError
from multiprocessing.connection import Client, Connection, Listener
from typing import Literal, Protocol

from holdfast.throwaway.postgres import PostgresServer
from holdfast.throwaway.valkey import ValkeyServer
from holdfast.throwaway.workdir import Workdir
from tests.servers.pgbouncer import PgbouncerServer

Kind = Literal["postgres", "pgbouncer", "valkey"]

# These variables point the suite at servers that run already.
URL_VARIABLES: Mapping[Kind, str] = {
    "postgres": "HOLDFAST_TEST_POSTGRES_URL",
    "pgbouncer": "HOLDFAST_TEST_PGBOUNCER_URL",
    "valkey": "HOLDFAST_TEST_REDIS_URL",
}


class UrlSource(Protocol):
    def url(self, kind: Kind) -> str:
        """The URL of the run's server of this kind; starts the server if it must."""


class SharedServers:
    """The run's servers, in the process that owns them."""

    def __init__(self) -> None:
        self._lock = threading.RLock()  # a pooler asks for the server behind it
        self._urls: dict[Kind, str] = {}
        self._closers: list[Callable[[], None]] = []
        self._key = secrets.token_bytes(32)
        self._listener: Listener | None = None
        self._closed = False

    def url(self, kind: Kind) -> str:
        with self._lock:
            if kind not in self._urls:
                self._urls[kind] = os.environ.get(URL_VARIABLES[kind]) or self._start(kind)
            return self._urls[kind]

    def _start(self, kind: Kind) -> str:
        if kind == "valkey":
            valkey = ValkeyServer()
            self._closers.append(valkey.close)
            return valkey.start().url
        if kind == "pgbouncer":
            pgbouncer = PgbouncerServer(self.url("postgres"))
            self._closers.append(pgbouncer.close)
            return pgbouncer.start().through(self.url("postgres"))
        postgres = PostgresServer()
        self._closers.append(postgres.close)
        return postgres.start().url()

    def serve(self) -> tuple[str, bytes]:
        """Answer worker processes from now on; returns what `RemoteServers` needs to ask."""
        if self._listener is None:
            directory = Workdir(None)
            self._closers.append(directory.remove)
            self._listener = Listener(str(directory.path / "servers.sock"), "AF_UNIX", authkey=self._key)
            threading.Thread(target=self._answer_all, args=(self._listener,), daemon=True).start()
        address = self._listener.address
        if not isinstance(address, str):
            raise TypeError(f"not the path of a socket: {address!r}")
        return address, self._key

    def _answer_all(self, listener: Listener) -> None:
        while not self._closed:
            # A worker may die while it asks; the others still need their answers.
            with suppress(AuthenticationError, EOFError, OSError), listener.accept() as worker:
                self._answer(worker)

    def _answer(self, worker: "Connection[object, Kind]") -> None:
        # Any failure goes back to the worker, whose test shows it: this thread has nobody to tell.
        kind = worker.recv()
        try:
            answer = (True, self.url(kind))
        except Exception as error:
            answer = (False, str(error))
        worker.send(answer)

    def close(self) -> None:
        self._closed = True
        if self._listener is not None:
            self._listener.close()
        for close in reversed(self._closers):
            close()
        self._closers.clear()


class RemoteServers:
    """The run's servers, asked for from a worker process."""

    def __init__(self, address: str, key: bytes) -> None:
        self._address = address
        self._key = key

    def url(self, kind: Kind) -> str:
        with Client(self._address, "AF_UNIX", authkey=self._key) as controller:
            controller.send(kind)
            started, answer = controller.recv()
        if not started:
            raise RuntimeError(answer)
        return str(answer)
