"""Who gets in: with a token that is forged, truncated, revoked, expired or another's, nobody, and nothing changes."""

from __future__ import annotations

import contextlib
import socket
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from typing import Any

import httpx
import pytest
from sqlalchemy import create_engine

from holdfast.domain.tokens import NewToken, Scope
from holdfast.serve import plane
from holdfast.serve.options import Limits
from holdfast.throwaway.postgres import PostgresEndpoint
from tests.contract.ground import ByHand
from tests.serve import http
from tests.serve.grounds import WORKER, Served, bearer, serving
from tests.serve.operations import Held, body_for, held, operations, request, standing
from tests.servers.waiting import DEADLINE_SECONDS, wait_until

# What is done under a lease.
LEASED = (
    *("heartbeat", "heartbeats", "complete", "fail", "release", "reports"),
    *("records", "source/enter", "source/leave", "cache/get", "cache/put"),
)
# Hundreds of failures from one address are what most of these tests are made of.
UNBOUNDED = Limits(failures_per_second=0)

# The store's part is the same for every operation, and `tests/contract/test_tokens.py` has it on both.
on_sqlite = pytest.mark.parametrize("served_database", ["sqlite"], indirect=True, scope="module")
on_postgres = pytest.mark.parametrize("served_database", ["postgres"], indirect=True, scope="module")


@pytest.fixture(scope="module")
def served(served_database: str) -> Iterator[Served]:
    with serving(served_database, limits=UNBOUNDED) as served:
        yield served


@pytest.fixture(scope="module")
def by_hand(served_database: str) -> Iterator[ByHand]:
    by_hand = ByHand(served_database)
    yield by_hand
    by_hand.engine.dispose()


@pytest.fixture
def job(served: Served, worker: httpx.Client, queue: str) -> Held:
    return held(served, worker, queue)


def bad_credentials(served: Served) -> dict[str, list[tuple[str, str]]]:
    good, other = served.tokens["admin"], served.tokens["worker"]
    store = served.store
    revoked = store.create_token(NewToken("revoked", (Scope.ADMIN,)))
    store.revoke_token("revoked")
    expired = store.create_token(NewToken("expired", (Scope.ADMIN,), None, 0.001))
    rotated = store.create_token(NewToken("rotated", (Scope.ADMIN,)))
    store.rotate_token("rotated")
    link = store.create_admin_link(3600)
    texts = {
        "nothing": "",
        "garbage": "Bearer \xff ' OR 1=1 --",
        "another scheme": f"Basic {good}",
        "no scheme": good,
        "forged": f"Bearer {good[:-64]}{other[-64:]}",
        "unknown": f"Bearer hf_{'0' * 16}_{good[-64:]}",
        "truncated": f"Bearer {good[:-1]}",
        "too long": f"Bearer {good}0",
        "upper-cased": f"Bearer {good.upper()}",
        "with spaces": f"Bearer  {good}",
        "revoked": f"Bearer {revoked.text}",
        "expired": f"Bearer {expired.text}",
        "rotated away": f"Bearer {rotated.text}",
        "a one-time link": f"Bearer {link.text}",
    }
    single = {name: [("Authorization", text)] for name, text in texts.items()}
    twice = [("Authorization", f"Bearer {good}")] * 2
    return {**single, "no header": [], "two headers": twice}


@on_sqlite
def test_no_operation_answers_without_a_valid_token(served: Served, by_hand: ByHand, job: Held) -> None:
    credentials = bad_credentials(served)
    before = standing(by_hand)
    with http.client(base_url=served.url) as client:
        for operation in operations(served.url):
            for name, given in credentials.items():
                headers = [(key, value.encode("latin-1")) for key, value in given]
                answer = request(client, operation, job, headers)
                assert answer.status_code == 401, (operation, name, answer.text)
                assert answer.headers["www-authenticate"] == 'Bearer realm="holdfast"'
                assert answer.headers["content-type"] == "application/problem+json"
                assert answer.headers["cache-control"] == "no-store"
                assert answer.json()["detail"].startswith("send one header")
    assert standing(by_hand) == before


@on_postgres
def test_each_operation_is_for_its_scopes_alone(served: Served, by_hand: ByHand, job: Held) -> None:
    listed = operations(served.url)
    clients = {scope: served.client(scope) for scope in served.tokens}
    before = standing(by_hand)
    for operation in listed:
        for scope in set(served.tokens) - operation.scopes:
            answer = request(clients[scope], operation, job)
            assert answer.status_code == 403, (operation, scope, answer.text)
            assert "admin" in answer.json()["detail"]
            assert 'error="insufficient_scope"' in answer.headers["www-authenticate"]
    assert standing(by_hand) == before
    for operation in listed:
        for scope in operation.scopes:
            answer = request(clients[scope], operation, job)
            assert answer.status_code not in (401, 403), (operation, scope, answer.text)
            assert answer.status_code < 500, (operation, scope, answer.text)
    for client in clients.values():
        client.close()


def test_scopes_add_up_and_queues_narrow_them(served: Served, queue: str) -> None:
    both = served.new_token("worker", "client", queues=(queue,))
    with served.client(token=both) as client:
        assert client.post("/api/v1/jobs", json={"task": "t", "payload": {}, "queue": queue}).status_code == 201
        refused = client.post("/api/v1/jobs", json={"task": "t", "payload": {}, "queue": "another"})
        assert refused.status_code == 403
        assert client.post(f"{WORKER}/claim", json={"worker_id": "w", "streams": ["another"]}).status_code == 403
        everything = client.post(f"{WORKER}/claim", json={"worker_id": "w", "streams": None}).json()
        assert everything["stream"] == queue, "null is all that the token may use"
        assert client.get("/api/v1/tokens").status_code == 403


@pytest.mark.parametrize("whose", ["another credential's", "another job's", "forged", "truncated", "upper-cased"])
def test_a_lease_is_of_no_use_to_anybody_else(
    served: Served, by_hand: ByHand, worker: httpx.Client, job: Held, queue: str, whose: str
) -> None:
    token, client = job.lease_token, worker
    match whose:
        case "another credential's":
            client = served.client(token=served.new_token("worker"))
        case "another job's":
            token = held(served, worker, queue).lease_token
        case "forged":
            token = "0" * len(token)
        case "truncated":
            token = token[:-1]
        case "upper-cased":
            token = token.upper()
    thief = Held(job.job_id, job.attempt_id, token, job.stream)
    before = standing(by_hand)
    for name in LEASED:
        answer = client.post(f"{WORKER}/{name}", json=body_for(f"{WORKER}/{name}", thief))
        assert answer.status_code == 200, answer.text
        told = answer.json()
        told = told["answers"][0] if "answers" in told else told
        assert told["ok"] is False, (name, told)
        assert told.get("ack", False) is False, "a forged report acknowledges nothing"
    assert standing(by_hand) == before
    assert worker.post(f"{WORKER}/heartbeat", json=job.lease).json()["ok"], "whose it is still holds it"
    if client is not worker:
        client.close()


def test_a_new_secret_keeps_the_leases_and_the_old_one_is_dead_at_once(served: Served, queue: str) -> None:
    issued = served.store.create_token(NewToken(f"rotating-{queue}", (Scope.WORKER,)))
    with served.client(token=issued.text) as before:
        job = held(served, before, queue)
        after_text = served.store.rotate_token(issued.token.name).text
        assert before.post(f"{WORKER}/heartbeat", json=job.lease).status_code == 401
    with served.client(token=after_text) as after:
        assert after.post(f"{WORKER}/heartbeat", json=job.lease).json()["ok"]
        assert after.post(f"{WORKER}/complete", json={**job.lease, "result": 1}).json()["ok"]


def test_a_revoked_token_is_refused_from_the_next_request_on(served: Served, admin: httpx.Client, queue: str) -> None:
    made = admin.post("/api/v1/tokens", json={"name": queue, "scopes": ["viewer"]}).json()
    with served.client(token=made["token"]) as client:
        for _ in range(3):
            assert client.get("/api/v1/queues").status_code == 200
        admin.post(f"/api/v1/tokens/{queue}/revoke").raise_for_status()
        assert client.get("/api/v1/queues").status_code == 401


@pytest.fixture
def patient(served_database: str, monkeypatch: pytest.MonkeyPatch) -> Iterator[Served]:
    """A control plane whose token lookups may wait for a lock longer than ten seconds."""
    monkeypatch.setattr(plane, "LONGEST_TIMEOUT_SECONDS", DEADLINE_SECONDS)
    with serving(served_database, limits=UNBOUNDED) as patient:
        yield patient


@on_postgres
def test_requests_that_wait_for_their_look_up_share_one(by_hand: ByHand, patient: Served) -> None:
    # Not who notes when a token was last used: that is no look-up.
    waiting = """
        SELECT count(*) FROM pg_stat_activity WHERE datname = current_database() AND wait_event_type = 'Lock'
        AND query LIKE '%holdfast_tokens%' AND query NOT LIKE '%UPDATE holdfast_tokens%'"""
    head = "GET /api/v1/tasks HTTP/1.1\r\nHost: x\r\nConnection: close\r\n"
    raw = f"{head}Authorization: Bearer {patient.tokens['viewer']}\r\n\r\n".encode()
    port = httpx.URL(patient.url).port
    assert port is not None
    with by_hand.engine.connect() as holder, contextlib.ExitStack() as stack:
        holder.exec_driver_sql("LOCK TABLE holdfast_tokens IN ACCESS EXCLUSIVE MODE")
        sockets = [
            stack.enter_context(socket.create_connection(("127.0.0.1", port), DEADLINE_SECONDS)) for _ in range(30)
        ]
        for one in sockets:
            one.sendall(raw)
        wait_until(lambda: by_hand(waiting)[0][0] > 0, what="nobody looks up a token")
        # Answered by the same server after all of those were sent, and without a look-up of its own.
        assert http.get(f"{patient.url}/healthz").status_code == 200
        assert by_hand(waiting)[0][0] <= 2, "the others wait for the next one, not for a connection each"
        holder.rollback()
        assert {one.recv(12) for one in sockets} == {b"HTTP/1.1 200"}


@on_postgres
def test_a_store_that_is_away_is_neither_a_yes_nor_a_no(
    served: Served, by_hand: ByHand, postgres_server: PostgresEndpoint
) -> None:
    name = by_hand("SELECT current_database()")[0][0]
    server = create_engine(postgres_server.url("postgres"), isolation_level="AUTOCOMMIT")
    with served.client("viewer") as client, server.connect() as connection:
        assert client.get("/api/v1/tasks").status_code == 200
        try:
            connection.exec_driver_sql(f"ALTER DATABASE {name} ALLOW_CONNECTIONS false")
            connection.exec_driver_sql(
                f"SELECT pg_terminate_backend(pid) FROM pg_stat_activity WHERE datname = '{name}'"
            )
            for headers in (None, bearer(f"hf_{'0' * 16}_{'0' * 64}")):
                answer = client.get("/api/v1/tasks", headers=headers)
                assert answer.status_code == 503, answer.text
                assert answer.headers["retry-after"]
            assert client.get("/api/v1/tasks", headers=bearer("nonsense")).status_code == 401
        finally:
            connection.exec_driver_sql(f"ALTER DATABASE {name} ALLOW_CONNECTIONS true")
        wait_until(lambda: client.get("/api/v1/tasks").status_code == 200, what="the store is not back")
    for engine in (server, by_hand.engine, served.store.database.engine):
        engine.dispose()


def test_refused_attempts_are_on_record_by_route_and_reason(
    served: Served, admin: httpx.Client, worker: httpx.Client, queue: str
) -> None:
    path = f"/api/v1/queues/{queue}/pause"
    assert http.post(f"{served.url}{path}?token=hush").status_code == 401
    assert worker.post(path).status_code == 403
    limited = served.new_token("client", queues=("other",))
    with served.client(token=limited) as client:
        assert client.post(path).status_code == 403
    forged = f"{limited[:-64]}{'0' * 64}"
    with served.client(token=forged) as client:
        assert client.post(path).status_code == 401

    def found() -> set[tuple[str, str]]:
        refusals = admin.get("/api/v1/access-refusals", params={"limit": 1000}).raise_for_status().json()["refusals"]
        assert "hush" not in repr(refusals)
        assert queue not in repr(refusals), "a route is a template, never the path"
        mine = [r for r in refusals if r["route"] == "/api/v1/queues/{name}/pause" and r["address"] == "127.0.0.1"]
        return {(r["credential"], r["reason"]) for r in mine}

    limited_id, worker_id = limited.split("_")[1], served.tokens["worker"].split("_")[1]
    wanted = {("", "no_token"), (worker_id, "wrong_scope"), (limited_id, "wrong_queue"), (limited_id, "wrong_secret")}
    wait_until(lambda: wanted <= found(), what="not all of it is on record")


@on_sqlite
def test_who_fails_too_often_waits_and_who_has_a_good_token_does_not(served_database: str) -> None:
    limits = Limits(failures_per_second=0.001, failure_burst=3, requests_per_second=0.001, burst=3)
    with serving(served_database, limits=limits) as served:
        known, fresh = served.client("viewer"), served.client("client")
        assert known.get("/api/v1/tasks").status_code == 200
        told = [http.get(f"{served.url}/api/v1/tasks").status_code for _ in range(5)]
        assert told == [401, 401, 401, 429, 429]
        unknown = http.get(f"{served.url}/api/v1/tasks", headers=bearer(f"hf_{'0' * 16}_{'0' * 64}"))
        assert (unknown.status_code, int(unknown.headers["retry-after"]) > 100) == (429, True)
        assert known.get("/api/v1/tasks").status_code == 200, "a neighbour's failures cost it nothing"
        assert fresh.get("/api/v1/tasks").status_code == 200, "nor one that was never seen here before"

        assert known.get("/api/v1/tasks").status_code == 200
        too_many = known.get("/api/v1/tasks")
        assert (too_many.status_code, int(too_many.headers["retry-after"]) > 100) == (429, True)
        assert "credential" in too_many.json()["detail"], "a credential has a rate of its own"
        known.close()
        fresh.close()


def _used(served: Served, name: str) -> bool:
    return any(token.name == name and token.last_used_at is not None for token in served.store.tokens())


@on_sqlite
def test_a_poll_that_waits_ends_when_its_token_is_revoked(served: Served, queue: str) -> None:
    issued = served.store.create_token(NewToken(queue, (Scope.WORKER,)))
    body: dict[str, Any] = {"worker_id": "w", "streams": [queue], "max_wait_ms": 60_000}
    with served.client(token=issued.text) as client, ThreadPoolExecutor(1) as pool:
        waiting = pool.submit(client.post, f"{WORKER}/claim", json=body)
        wait_until(lambda: _used(served, queue), what="it was not let in")
        served.store.revoke_token(queue)
        answer = waiting.result(DEADLINE_SECONDS).json()
        assert answer["claimed"] is False
        assert answer["waited_ms"] < body["max_wait_ms"], "the poll ended before its time"
        served.enqueue(queue)
        assert client.post(f"{WORKER}/claim", json=body).status_code == 401
