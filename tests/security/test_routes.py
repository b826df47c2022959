"""Every route with no token, a wrong one, one of each scope, and one of other queues: each as the table says it."""

from __future__ import annotations

import re
import uuid
from collections.abc import Iterator
from contextlib import ExitStack
from dataclasses import dataclass
from typing import Any

import httpx
import pytest

from holdfast.domain.schedule import Declaration
from holdfast.serve.dashboard.session import cookie_name, csrf_word
from holdfast.serve.options import Limits
from scripts.render_docs import DOCS
from tests.contract.ground import ByHand
from tests.security.access import EVERYBODY, PAGES, PROGRAMS, TABLE
from tests.security.routes import application, described, hidden
from tests.serve import http
from tests.serve.grounds import Served, bearer, serving
from tests.serve.operations import Held, body_for, held, standing

SCOPES = ("worker", "client", "viewer", "admin")
UNBOUNDED = Limits(failures_per_second=0, requests_per_second=0)
SOURCE = "source-of-all"
NOBODY = f"hf_{'0' * 16}_{'0' * 64}"

on_sqlite = pytest.mark.parametrize("served_database", ["sqlite"], indirect=True, scope="module")


@dataclass(frozen=True)
class Door:
    """A control plane, and a job of a queue in it that has everything of its name."""

    served: Served
    job: Held

    def ask(self, route: str, token: str | None, client: httpx.Client) -> httpx.Response:
        return self._ask_page(route, token, client) if route in PAGES else self._ask(route, token, client)

    def _path(self, route: str) -> tuple[str, str]:
        method, _, path = route.partition(" ")
        values = {"job_id": self.job.job_id, "name": self.job.stream, "record_id": self.job.job_id, "digest": "0"}
        values |= {"name": SOURCE} if "/sources/" in path else {}
        for name, value in {**values, "verb": "cancel", "run_id": str(uuid.UUID(int=7))}.items():
            path = path.replace(f"{{{name}}}", value)
        return method, path

    def _ask(self, route: str, token: str | None, client: httpx.Client) -> httpx.Response:
        method, path = self._path(route)
        body = None if method in ("GET", "DELETE") else self._body(route.partition(" ")[2])
        params = {"seconds": "0"} if path.endswith("/stream") else {}
        params |= {"scope": "s"} if route == "DELETE /api/v1/records" else {}
        return client.request(method, path, params=params, json=body, headers=bearer(token) if token else {})

    def _body(self, path: str) -> dict[str, Any]:
        job = self.job
        line = {"job_id": job.job_id, "attempt": 1, "number": 1, "at": "2026-01-01T00:00:00Z", "stream": "log"}
        lease = {"attempt_id": job.attempt_id, "lease_token": job.lease_token}
        others: dict[str, dict[str, Any]] = {
            "/internal/worker/logs": {"worker_id": "w", "lines": [{**line, "message": "m"}], "leases": [lease]},
            "/internal/worker/worker": {
                "id": job.job_id,
                "host": "h",
                "pid": 1,
                "state": "idle",
                "queues": [job.stream],
            },
        }
        return others.get(path) or body_for(path, job)

    def _ask_page(self, route: str, token: str | None, client: httpx.Client) -> httpx.Response:
        method, path = self._path(route)
        port = httpx.URL(self.served.url).port
        headers = {} if token is None else {"Cookie": f"{cookie_name(port)}={token}"}
        if method == "GET":
            named = {"/source": SOURCE, "/charts/source": SOURCE, "/charts/queue": self.job.stream}
            params = {"name": named[path]} if path in named else {}
            if path == "/live":  # which goes on for ever
                with client.stream(method, path, headers=headers) as answer:
                    return httpx.Response(answer.status_code, headers=answer.headers)
            return client.get(path, params=params, headers=headers)
        headers |= {} if token is None else {"X-CSRF-Token": csrf_word(token)}
        form = {"name": self.job.stream, "ids": self.job.job_id, "token": token or "", "code": token or ""}
        return client.post(path, data={**form, "seconds": "60", "limit": "1"}, headers=headers)


def furnished(served: Served, queue: str) -> Door:
    served.store.add_schedule(Declaration(name=queue, task="send", cron="0 7 * * *", job={"queue": queue}))
    with served.client("admin") as admin:
        return Door(served, held(served, admin, queue))


@pytest.fixture(scope="module")
def door(served_database: str) -> Iterator[Door]:
    with serving(served_database, limits=UNBOUNDED, metrics="token") as served:
        served.store.set_source(SOURCE, rate_limit_per_minute=60.0)
        yield furnished(served, "queue-of-one-tenant")


@pytest.fixture
def asking(door: Door) -> Iterator[httpx.Client]:
    with ExitStack() as stack:
        yield stack.enter_context(http.client(base_url=door.served.url))


@pytest.fixture
def by_hand(served_database: str) -> Iterator[ByHand]:
    by_hand = ByHand(served_database)
    yield by_hand
    by_hand.engine.dispose()


def test_every_route_is_in_the_table_and_nothing_else_is() -> None:
    app = application()
    assert described(app) | hidden(app) == set(TABLE)
    assert not described(app) & set(PAGES)


@on_sqlite
@pytest.mark.parametrize("token", [None, NOBODY, "nonsense"])
def test_without_a_valid_token_nothing_is_told_or_changed(
    door: Door, asking: httpx.Client, by_hand: ByHand, token: str | None
) -> None:
    before = standing(by_hand)
    for route, access in TABLE.items():
        answer = door.ask(route, token, asking)
        if access.scopes == EVERYBODY:
            assert answer.status_code < 500, route
        elif route in PROGRAMS:
            assert answer.status_code == 401, route
        else:
            assert (answer.status_code, answer.headers["location"][:8]) == (303, "/sign-in"), route
        assert door.job.stream not in answer.text, route
    assert standing(by_hand) == before


@on_sqlite
@pytest.mark.parametrize("scope", SCOPES)
def test_a_scope_opens_its_routes_and_no_other(door: Door, asking: httpx.Client, by_hand: ByHand, scope: str) -> None:
    token = door.served.tokens[scope]
    before = standing(by_hand)
    for route, access in TABLE.items():
        if access.scopes and scope not in access.scopes:
            answer = door.ask(route, token, asking)
            assert answer.status_code == 403, (route, answer.text)
            assert door.job.stream not in answer.text, route
    assert standing(by_hand) == before
    if scope == "worker":  # a lease is of use to whoever claimed it
        with door.served.client(scope) as worker:
            door = Door(door.served, held(door.served, worker, door.job.stream))
    for route, access in TABLE.items():
        if scope in access.scopes:
            answer = door.ask(route, token, asking)
            assert answer.status_code not in (401, 403), (route, answer.text)
            assert answer.status_code < 500, (route, answer.text)
            assert not answer.headers.get("location", "").startswith("/sign-in") or route == "POST /sign-out", route


EXPECTED = {"hidden": 404, "refused": 403, "filtered": 200, "shared": 200, "not held": 200}


@on_sqlite
@pytest.mark.parametrize("scope", [scope for scope in SCOPES if scope != "admin"])
def test_a_token_of_other_queues_neither_sees_nor_changes_this_one(
    door: Door, asking: httpx.Client, by_hand: ByHand, scope: str
) -> None:
    token = door.served.new_token(scope, queues=("another",))
    elsewhere = furnished(door.served, f"queue-hidden-from-a-{scope}")
    job = elsewhere.job
    before = standing(by_hand)
    for route, access in TABLE.items():
        if scope not in access.scopes or not access.elsewhere:
            continue
        answer = elsewhere.ask(route, token, asking)
        assert answer.status_code == EXPECTED[access.elsewhere], (route, answer.status_code, answer.text)
        if access.elsewhere == "filtered":
            assert job.stream not in answer.text, route
            assert job.job_id not in answer.text, route
        if access.elsewhere == "not held":
            assert '"ok":false' in answer.text, route
            assert '"ok":true' not in answer.text, route
    assert standing(by_hand) == before


def test_the_page_says_of_each_operation_what_the_table_says() -> None:
    page = (DOCS / "security.md").read_text(encoding="utf-8")
    rows = re.findall(r"^\| `([A-Z]+ /\S+)` \|(.*)\|$", page, re.MULTILINE)
    said = {route: [mark.strip() == "yes" for mark in marks.split("|")] for route, marks in rows}
    assert said.keys() == described(application())
    for route, (nobody, *scopes) in said.items():
        access = TABLE[route]
        assert nobody == (access.scopes == EVERYBODY), route
        assert scopes == [nobody or scope in access.scopes for scope in SCOPES], route
