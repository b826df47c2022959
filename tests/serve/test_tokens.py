"""`/api/v1/tokens`: made, shown, rotated and revoked by admins; and when a token was last used."""

from __future__ import annotations

import asyncio

import httpx
import pytest

from holdfast.domain.events import Events
from holdfast.domain.tokens import AccessRefusal
from holdfast.serve.options import ServeSettings
from holdfast.serve.plane import make_plane
from holdfast.serve.refusals import MOST_GATHERED, Minutes
from tests.serve.grounds import Served
from tests.servers.waiting import wait_until


def listed(admin: httpx.Client, name: str) -> dict[str, object]:
    tokens = admin.get("/api/v1/tokens").raise_for_status().json()["tokens"]
    [found] = [token for token in tokens if token["name"] == name]
    assert isinstance(found, dict)
    return found


def test_a_token_is_made_used_rotated_and_revoked(served: Served, admin: httpx.Client, queue: str) -> None:
    name = f"team/{queue}"
    made = admin.post(
        "/api/v1/tokens",
        json={"name": name, "scopes": ["client", "worker"], "queues": [queue], "expires_seconds": 3600},
    )
    assert made.status_code == 201
    first = made.json()
    assert set(first) == {"id", "name", "token", "scopes", "queues", "expires_at"}
    assert (first["scopes"], first["queues"]) == (["worker", "client"], [queue])
    assert admin.post("/api/v1/tokens", json={"name": name, "scopes": ["client"]}).status_code == 409
    assert listed(admin, name)["last_used_at"] is None
    with served.client(token=first["token"]) as client:
        assert client.get("/api/v1/jobs", params={"queue": queue}).status_code == 200
    wait_until(lambda: listed(admin, name)["last_used_at"] is not None, what="its use is not on record")

    second = admin.post(f"/api/v1/tokens/{name}/rotate").raise_for_status().json()
    assert (second["id"], second["token"] == first["token"]) == (first["id"], False)
    with served.client(token=second["token"]) as client:
        assert client.get("/api/v1/jobs", params={"queue": queue}).status_code == 200
        gone = admin.post(f"/api/v1/tokens/{name}/revoke").raise_for_status().json()
        assert gone["revoked_at"] is not None
        assert client.get("/api/v1/jobs", params={"queue": queue}).status_code == 401
    assert admin.post(f"/api/v1/tokens/{name}/rotate").status_code == 404
    shown = admin.get("/api/v1/tokens").text
    assert first["token"][-64:] not in shown
    assert second["token"][-64:] not in shown


@pytest.mark.parametrize(
    "body",
    [
        {},
        {"name": "n"},
        {"name": "n", "scopes": []},
        {"name": "n", "scopes": ["root"]},
        {"name": "n", "scopes": "admin"},
        {"name": "", "scopes": ["client"]},
        {"name": "a\u0000b", "scopes": ["client"]},
        {"name": 5, "scopes": ["client"]},
        {"name": "n", "scopes": ["client"], "queues": []},
        {"name": "n", "scopes": ["admin"], "queues": ["q"]},
        {"name": "n", "scopes": ["client"], "expires_seconds": 0},
        {"name": "n", "scopes": ["client"], "expires_seconds": 1e300},
        {"name": "n", "scopes": ["client"], "expires": "30d"},
    ],
)
def test_a_wrong_request_makes_no_token(served: Served, admin: httpx.Client, body: dict[str, object]) -> None:
    before = served.store.tokens()
    answer = admin.post("/api/v1/tokens", json=body)
    assert answer.status_code == 422, answer.text
    assert [token.id for token in served.store.tokens()] == [token.id for token in before]


@pytest.mark.parametrize("served_database", ["sqlite"], indirect=True, scope="module")
def test_refusals_without_number_fill_neither_memory_nor_table(served: Served) -> None:
    async def many() -> int:
        plane = make_plane(ServeSettings(database_url=served.database_url, duties=False), Events())
        await plane.open()
        minutes = Minutes(plane)
        for number in range(5 * MOST_GATHERED):
            minutes.refused("", "no_token", "/flooded", f"192.0.2.{number}")
        await minutes.close()
        await plane.close()
        return sum(refusal.count for refusal in found() if refusal.address == "*")

    def found() -> list[AccessRefusal]:
        return [refusal for refusal in served.store.access_refusals(10_000) if refusal.route == "/flooded"]

    folded = asyncio.run(many())
    assert (len(found()), folded) == (MOST_GATHERED + 1, 4 * MOST_GATHERED)
