"""A receiver of webhooks: a real server on loopback that writes down what arrives and answers what it is told to."""

from __future__ import annotations

import json
import ssl
import threading
from collections import deque
from dataclasses import dataclass, field
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path
from types import TracebackType
from typing import Any, Self

# For receiver.test and nobody else, signed by itself.
CERTIFICATE = Path(__file__).with_name("receiver.test.pem")


@dataclass(frozen=True)
class Arrived:
    path: str
    headers: dict[str, str]
    body: bytes
    address: str  # at which it arrived

    @property
    def message(self) -> Any:
        return json.loads(self.body)


@dataclass
class Receiver:
    """`answers` are used up one by one; after them it says 200."""

    host: str = "127.0.0.1"
    port: int = 0
    secure: bool = False
    answers: deque[tuple[int, dict[str, str]]] = field(default_factory=deque)
    arrived: list[Arrived] = field(default_factory=list)

    def __post_init__(self) -> None:
        receiver = self

        class Handler(BaseHTTPRequestHandler):
            def do_POST(self) -> None:
                body = self.rfile.read(int(self.headers["Content-Length"]))
                headers = {name.lower(): value for name, value in self.headers.items()}
                receiver.arrived.append(Arrived(self.path, headers, body, self.connection.getsockname()[0]))
                status, more = receiver.answers.popleft() if receiver.answers else (200, {})
                self.send_response(status)
                for name, value in {"Content-Length": "5", **more}.items():
                    self.send_header(name, value)
                self.end_headers()
                self.wfile.write(b"taken")

            def log_message(self, *_: object) -> None:
                pass

        self._server = ThreadingHTTPServer((self.host, self.port), Handler)
        self.port = self._server.server_address[1]
        if self.secure:
            context = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
            context.load_cert_chain(CERTIFICATE)
            self._server.socket = context.wrap_socket(self._server.socket, server_side=True)
        self._thread = threading.Thread(target=self._server.serve_forever, args=(0.01,), daemon=True)
        self._thread.start()

    @property
    def url(self) -> str:
        return f"http://{self.host}:{self.port}/hooks?of=jobs"

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self._server.shutdown()
        self._server.server_close()
        self._thread.join()
