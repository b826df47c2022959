"""What orchestrators and Prometheus ask a worker over HTTP: `/healthz`, `/readyz` and `/metrics`.

A thread a request, so that one slow client cannot make a healthy worker look dead, and a time limit on every read.
"""

from __future__ import annotations

import json
import socket
import socketserver
import threading
from collections.abc import Callable
from dataclasses import dataclass, field
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from typing import TYPE_CHECKING, Any

from holdfast.observe.board import encoder_for

if TYPE_CHECKING:
    from prometheus_client import CollectorRegistry

REQUEST_SECONDS = 5.0
_JSON = "application/json"


@dataclass(frozen=True, slots=True)
class Health:
    """`alive` false: restart it. `ready` false: leave it alone, it is starting, draining or waiting for its store.

    `detail` is shown as it is, as JSON: the worker's state, the seconds since its last successful poll.
    """

    alive: bool
    ready: bool
    detail: dict[str, Any] = field(default_factory=dict)


Probe = Callable[[], Health]


class HealthServer:
    """Listens from the moment it is made; port 0 takes any free port, `port` tells which."""

    def __init__(self, host: str, port: int, registry: CollectorRegistry, probe: Probe) -> None:
        self._server = _Server(host, port, registry, probe)
        self.host = host
        self.port: int = self._server.server_address[1]
        self._thread = threading.Thread(target=self._server.serve_forever, name="holdfast-health", daemon=True)
        self._thread.start()

    def close(self) -> None:
        self._server.shutdown()
        self._server.server_close()
        self._thread.join()


class _Server(ThreadingHTTPServer):
    daemon_threads = True
    block_on_close = False  # a client that hangs does not hold up the worker's end

    def __init__(self, host: str, port: int, registry: CollectorRegistry, probe: Probe) -> None:
        self.registry = registry
        self.probe = probe
        self.address_family = socket.AF_INET6 if ":" in host else socket.AF_INET
        super().__init__((host, port), _Handler)

    def server_bind(self) -> None:
        # HTTPServer's own would look the name of the address up: seconds, on a machine without a name server.
        socketserver.TCPServer.server_bind(self)

    def handle_error(self, request: Any, client_address: Any) -> None:
        """A client that hung up is no news; the default prints a traceback into the worker's log."""


class _Handler(BaseHTTPRequestHandler):
    server: _Server
    timeout = REQUEST_SECONDS
    server_version = "holdfast"
    sys_version = ""

    def do_GET(self) -> None:
        match self.path.partition("?")[0]:
            case "/metrics":
                self._metrics()
            case "/healthz":
                self._health(lambda health: health.alive)
            case "/readyz":
                self._health(lambda health: health.ready)
            case _:
                self._answer(404, _JSON, b'{"paths": ["/healthz", "/readyz", "/metrics"]}')

    do_HEAD = do_GET

    def _metrics(self) -> None:
        encode, content_type = encoder_for(self.headers.get("Accept", ""))
        self._answer(200, content_type, encode(self.server.registry))

    def _health(self, good: Callable[[Health], bool]) -> None:
        try:
            health = self.server.probe()
        except Exception as error:  # a probe that fails is an answer too
            health = Health(alive=False, ready=False, detail={"error": type(error).__name__})
        content = {"alive": health.alive, "ready": health.ready, **health.detail}
        self._answer(200 if good(health) else 503, _JSON, json.dumps(content, default=str).encode())

    def _answer(self, status: int, content_type: str, body: bytes) -> None:
        self.send_response(status)
        self.send_header("Content-Type", content_type)
        self.send_header("Content-Length", str(len(body)))
        self.send_header("Cache-Control", "no-store")
        self.end_headers()
        if self.command != "HEAD":
            self.wfile.write(body)

    def log_message(self, format: str, *args: object) -> None:
        """Probes come every few seconds; they are not worth a line each."""
