"""What an orchestrator sees of a worker over HTTP."""

import http.client
import json
import socket
from collections.abc import Iterator
from typing import Any

import pytest
from prometheus_client import CollectorRegistry, Counter

from holdfast.observe.health import Health, HealthServer
from tests.servers.waiting import DEADLINE_SECONDS

DETAIL = {"state": "polling", "seconds_since_poll": 0.4}


class Worker:
    health: Health | Exception = Health(alive=True, ready=True, detail=DETAIL)

    def probe(self) -> Health:
        if isinstance(self.health, Exception):
            raise self.health
        return self.health


@pytest.fixture(scope="module")
def probed() -> Worker:
    return Worker()


@pytest.fixture(autouse=True)
def worker(probed: Worker) -> Worker:
    """The one behind the server, as it was made."""
    probed.health = Worker.health
    return probed


@pytest.fixture(scope="module")
def server(probed: Worker) -> Iterator[HealthServer]:
    """One for all tests: to close it takes half a second."""
    registry = CollectorRegistry()
    Counter("holdfast_claims", "Claims.", registry=registry).inc(3)
    server = HealthServer("127.0.0.1", 0, registry, probed.probe)
    yield server
    server.close()


def ask(server: HealthServer, path: str, method: str = "GET") -> tuple[int, str, str]:
    connection = http.client.HTTPConnection(server.host, server.port, timeout=DEADLINE_SECONDS)
    try:
        connection.request(method, path)
        response = connection.getresponse()
        return response.status, response.headers.get("Content-Type", ""), response.read().decode()
    finally:
        connection.close()


@pytest.mark.parametrize(
    ("alive", "ready", "healthz", "readyz"),
    [(True, True, 200, 200), (True, False, 200, 503), (False, False, 503, 503)],
)
def test_health_and_readiness_are_two_answers(
    server: HealthServer, worker: Worker, alive: bool, ready: bool, healthz: int, readyz: int
) -> None:
    worker.health = Health(alive, ready, DETAIL)
    for path, expected in (("/healthz", healthz), ("/readyz", readyz)):
        status, content_type, body = ask(server, path)
        assert (status, content_type) == (expected, "application/json")
        assert json.loads(body) == {"alive": alive, "ready": ready, **DETAIL}


def test_a_probe_that_fails_is_not_healthy(worker: Worker, server: HealthServer) -> None:
    worker.health = KeyError("state")
    status, _, body = ask(server, "/healthz")
    assert status == 503
    assert json.loads(body)["error"] == "KeyError"


def test_metrics_are_in_the_text_format_of_prometheus(server: HealthServer) -> None:
    status, content_type, body = ask(server, "/metrics?name[]=x")
    assert status == 200
    assert content_type.startswith("text/plain; version=0.0.4")
    assert "holdfast_claims_total 3.0" in body


def test_head_has_no_body(server: HealthServer) -> None:
    assert ask(server, "/readyz", "HEAD") == (200, "application/json", "")


@pytest.mark.parametrize("method", ["POST", "PUT", "DELETE"])
def test_nothing_but_reading_is_possible(server: HealthServer, method: str) -> None:
    assert ask(server, "/metrics", method)[0] == 501


def test_an_unknown_path_is_told_the_known_ones(server: HealthServer) -> None:
    status, _, body = ask(server, "/")
    assert status == 404
    assert "/readyz" in body


def test_a_client_that_says_nothing_holds_up_nobody(server: HealthServer) -> None:
    with socket.create_connection((server.host, server.port)):
        assert ask(server, "/healthz")[0] == 200


def test_a_client_that_hangs_up_leaves_no_trace(server: HealthServer, capfd: pytest.CaptureFixture[str]) -> None:
    for _ in range(5):
        with socket.create_connection((server.host, server.port)) as client:
            client.setsockopt(socket.SOL_SOCKET, socket.SO_LINGER, b"\1\0\0\0\0\0\0\0")
            client.sendall(b"GET /metrics HTTP/1.1\r\n\r\n")
    assert ask(server, "/healthz")[0] == 200
    assert capfd.readouterr().err == ""


def test_a_closed_server_frees_its_port(worker: Worker) -> None:
    first = HealthServer("127.0.0.1", 0, CollectorRegistry(), worker.probe)
    first.close()
    second = HealthServer("127.0.0.1", first.port, CollectorRegistry(), worker.probe)
    assert second.port == first.port
    second.close()


def test_a_port_that_is_taken_is_an_error_at_once(server: HealthServer, worker: Worker) -> None:
    with pytest.raises(OSError, match="in use"):
        HealthServer("127.0.0.1", server.port, CollectorRegistry(), worker.probe)


def test_it_also_binds_ipv6(worker: Worker) -> None:
    try:
        server: Any = HealthServer("::1", 0, CollectorRegistry(), worker.probe)
    except OSError:
        pytest.skip("this machine has no IPv6")
    assert ask(server, "/healthz")[0] == 200
    server.close()
