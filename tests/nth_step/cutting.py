"""A way to a server on which the n-th question gets lost, or its answer.

One question is answered before the next is asked on the same connection, in every protocol that we speak (Postgres,
Redis, HTTP): so a question is what a client sends on a new connection or after an answer. A connection that is cut is
closed at once for the client, without a word. To the server it is closed as well, and the proxy waits for the server to
do the same: a backend of Postgres does so when it has rolled back and let go of its locks. Until then the way is not
`quiet`, and what is in the database may still change.
"""

from __future__ import annotations

import selectors
import socket
import threading
from collections.abc import Callable
from contextlib import suppress
from types import TracebackType
from typing import Self

from tests.nth_step.fault import Fault, Moment
from tests.servers.waiting import DEADLINE_SECONDS

CHUNK = 65_536


class CuttingProxy:
    """`strike` is called at the fatal step, before the connection is cut."""

    def __init__(self, server: tuple[str, int], fault: Fault, strike: Callable[[], None] = lambda: None) -> None:
        self._server = server
        self.fault = fault
        self.strike = strike
        self._listener = socket.create_server(("127.0.0.1", 0))
        self.address: tuple[str, int] = self._listener.getsockname()
        self._waking, self._bell = socket.socketpair()
        self._selector = selectors.DefaultSelector()
        self._selector.register(self._listener, selectors.EVENT_READ, self._accept)
        self._selector.register(self._waking, selectors.EVENT_READ, self._end)
        self._quiet = threading.Event()
        self._quiet.set()
        self._ending = False
        self._thread = threading.Thread(target=self._run, name="cutting-proxy", daemon=True)

    def __enter__(self) -> Self:
        self._thread.start()
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self._bell.close()
        self._thread.join(DEADLINE_SECONDS)
        assert not self._thread.is_alive()

    def wait_until_quiet(self) -> None:
        """Until the servers are done with every connection that was cut."""
        assert self._quiet.wait(DEADLINE_SECONDS), "the server still has a connection that was cut"

    def _run(self) -> None:
        while not self._ending:
            for key, _events in self._selector.select():
                key.data()
        for key in list(self._selector.get_map().values()):
            assert isinstance(key.fileobj, socket.socket)
            key.fileobj.close()
        self._selector.close()

    def _end(self) -> None:
        self._ending = True

    def _accept(self) -> None:
        client, _address = self._listener.accept()
        try:
            server = socket.create_connection(self._server)
        except OSError:
            client.close()
            return
        for end in (client, server):
            end.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
        line = _Line(self, client, server)
        self._selector.register(client, selectors.EVENT_READ, line.question)
        self._selector.register(server, selectors.EVENT_READ, line.answer)

    def forget(self, *ends: socket.socket) -> None:
        for end in ends:
            self._selector.unregister(end)

    def cut(self, client: socket.socket, server: socket.socket) -> None:
        self._quiet.clear()
        self.strike()
        client.close()
        with suppress(OSError):
            server.settimeout(DEADLINE_SECONDS)
            server.shutdown(socket.SHUT_WR)
            while server.recv(CHUNK):
                pass
        server.close()
        self._quiet.set()


class _Line:
    def __init__(self, proxy: CuttingProxy, client: socket.socket, server: socket.socket) -> None:
        self._proxy = proxy
        self._client = client
        self._server = server
        self._asking = False
        self._loses_answer = False
        self._is_open = True

    def question(self) -> None:
        sent = self._received(self._client)
        if sent is None:
            return
        if not self._asking:
            self._asking = True
            moment = self._proxy.fault.step()
            if moment is Moment.BEFORE:
                self._cut()
                return
            self._loses_answer = moment is Moment.AFTER
        self._pass_on(sent, self._server)

    def answer(self) -> None:
        sent = self._received(self._server)
        if sent is None:
            return
        if self._loses_answer:
            self._cut()
            return
        self._asking = False
        self._pass_on(sent, self._client)

    def _received(self, end: socket.socket) -> bytes | None:
        """None when there will be no more."""
        if not self._is_open:  # cut a moment ago, while this was already to be read
            return None
        with suppress(OSError):
            if sent := end.recv(CHUNK):
                return sent
        self._close()
        return None

    def _pass_on(self, sent: bytes, end: socket.socket) -> None:
        try:
            end.sendall(sent)
        except OSError:
            self._close()

    def _cut(self) -> None:
        self._forget()
        self._proxy.cut(self._client, self._server)

    def _close(self) -> None:
        self._forget()
        self._client.close()
        self._server.close()

    def _forget(self) -> None:
        self._is_open = False
        self._proxy.forget(self._client, self._server)
