"""A way to the database on which an answer can get lost, or all of them: nobody is told, and nobody is cut off."""

from __future__ import annotations

import socket
import threading
from contextlib import suppress
from types import TracebackType
from typing import Self

from sqlalchemy import make_url

CHUNK = 65_536


class ForgetfulProxy:
    """Passes everything on, until it has been told to lose the answer to a statement: then it cuts the connection."""

    def __init__(self, url: str) -> None:
        parsed = make_url(url)
        self._server = (parsed.host or "127.0.0.1", parsed.port or 5432)
        self._listener = socket.create_server(("127.0.0.1", 0))
        port = self._listener.getsockname()[1]
        self.url = parsed.set(host="127.0.0.1", port=port).render_as_string(hide_password=False)
        self._marker: bytes | None = None
        self.lost = 0
        self.is_a_black_hole = False
        threading.Thread(target=self._accept, daemon=True).start()

    def lose_answer_to(self, marker: bytes) -> None:
        """Of the next statement whose text contains this."""
        self._marker = marker

    def become_a_black_hole(self) -> None:
        """Take everything in, acknowledge it, answer nothing and close nothing."""
        self.is_a_black_hole = True

    def lead_to(self, url: str) -> None:
        """New connections, that is, as after a change of DNS or of a virtual address."""
        parsed = make_url(url)
        self._server = (parsed.host or "127.0.0.1", parsed.port or 5432)

    def forward_again(self) -> None:
        """New connections, that is: what was swallowed on the old ones is gone, and they stay silent."""
        self.is_a_black_hole = False

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self._listener.close()

    def _accept(self) -> None:
        with suppress(OSError):  # the listener was closed
            while True:
                client, _address = self._listener.accept()
                try:
                    server = socket.create_connection(self._server)
                except OSError:
                    client.close()
                    continue
                line = _Line(self, client, server)
                threading.Thread(target=line.carry_questions, daemon=True).start()
                threading.Thread(target=line.carry_answers, daemon=True).start()

    def is_to_be_lost(self, question: bytes) -> bool:
        if self._marker is None or self._marker not in question:
            return False
        self._marker = None
        self.lost += 1
        return True


class _Line:
    def __init__(self, proxy: ForgetfulProxy, client: socket.socket, server: socket.socket) -> None:
        self._proxy = proxy
        self._client = client
        self._server = server
        self._answer_is_lost = False
        self._is_dead = proxy.is_a_black_hole

    def carry_questions(self) -> None:
        with suppress(OSError):
            while question := self._client.recv(CHUNK):
                if self._swallows():
                    continue
                self._answer_is_lost |= self._proxy.is_to_be_lost(question)
                self._server.sendall(question)
        self._cut()

    def carry_answers(self) -> None:
        with suppress(OSError):
            while (answer := self._server.recv(CHUNK)) and not self._answer_is_lost:
                if not self._swallows():
                    self._client.sendall(answer)
        self._cut()

    def _swallows(self) -> bool:
        self._is_dead |= self._proxy.is_a_black_hole
        return self._is_dead

    def _cut(self) -> None:
        for end in (self._client, self._server):
            with suppress(OSError):
                end.shutdown(socket.SHUT_RDWR)
            end.close()
