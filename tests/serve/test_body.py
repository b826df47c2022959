"""What a body may be: its size, its time, its form. A refused one changes nothing, and says which rule it broke."""

from __future__ import annotations

from collections.abc import Iterator

import httpx
import pytest

from holdfast.serve.options import Limits
from tests.serve import http
from tests.serve.grounds import WORKER, Served, bearer, serving

JSON = {"Content-Type": "application/json"}
LIMITS = Limits(body_bytes=20_000, single_body_bytes=5_000, body_seconds=60.0, head_seconds=60.0, failures_per_second=0)

# What is read is the same, wherever it then goes.
on_sqlite = pytest.mark.parametrize("served_database", ["sqlite"], indirect=True, scope="module")
pytestmark = on_sqlite


@pytest.fixture(scope="module")
def served(served_database: str) -> Iterator[Served]:
    with serving(served_database, limits=LIMITS) as served:
        yield served


@pytest.fixture
def client(served: Served) -> Iterator[httpx.Client]:
    """Whatever a test sends, no job comes of it."""
    before = served.store.counts()
    with served.client("client") as client:
        yield client
    assert served.store.counts() == before


def padded(size: int) -> bytes:
    head, tail = b'{"task": "t", "payload": {"x": "', b'"}}'
    return head + b"x" * (size - len(head) - len(tail)) + tail


@pytest.mark.parametrize("path", ["/api/v1/jobs", "/api/v1/jobs/batch"])
@pytest.mark.parametrize("chunked", [False, True])
def test_a_body_that_is_too_large_is_refused_with_its_limit(client: httpx.Client, path: str, chunked: bool) -> None:
    limit = LIMITS.body_bytes if path.endswith("batch") else LIMITS.single_body_bytes
    for size in (limit + 1, 3 * limit, 100 * limit):
        body = padded(size)
        pieces = (body[at : at + 4096] for at in range(0, size, 4096))
        answer = client.post(path, content=pieces if chunked else body, headers=JSON)
        assert answer.status_code == 413, answer.text
        assert answer.json()["limit_bytes"] == limit
        assert answer.headers["content-type"] == "application/problem+json"


def test_the_largest_body_is_read(served: Served) -> None:
    with served.client("client") as client:
        for path, body in (("/api/v1/jobs", padded(5_000)), ("/api/v1/jobs/batch", b'{"jobs": [%s]}' % padded(19_988))):
            answer = client.post(path, content=body, headers=JSON)
            assert answer.status_code == 201, answer.text


@pytest.mark.parametrize(
    ("body", "said"),
    [
        (b'{"task": "t", "task": "u", "payload": {}}', "the key 'task' twice"),
        (b'{"task": "t", "payload": {"x": NaN}}', "NaN is not JSON"),
        (b'{"task": "t", "payload": {"x": 1e400}}', "too large"),
        (b'{"task": "t", "payload": {"x": ' + b"9" * 4500 + b"}}", "thousands of digits"),
        (b'{"task": "t", "payload": {"x": "\xc3\x28"}}', "not UTF-8"),
        (b'{"task": "t", "payload": {"x": "\\udfff"}}', "surrogate"),
        (b'{"task": "t", "payload": ' + b'{"x":' * 200 + b"1" + b"}" * 201, "nested deeper than 100"),
        (b'{"task": "t", "payload": {}', "not JSON"),
        (b"task=t", "not JSON"),
        (b"", "body"),
        (b"[]", "body"),
        (b"null", "body"),
        (b'"x"', "body"),
    ],
)
def test_a_body_that_is_not_plain_json_is_refused(client: httpx.Client, body: bytes, said: str) -> None:
    answer = client.post("/api/v1/jobs", content=body, headers=JSON)
    assert answer.status_code == 422, answer.text
    assert said in answer.json()["detail"]


@pytest.mark.parametrize("kind", ["", "text/plain", "application/x-www-form-urlencoded", "application/jsonp", "json"])
def test_another_content_type_is_refused(client: httpx.Client, kind: str) -> None:
    answer = client.post("/api/v1/jobs", content=b'{"task": "t", "payload": {}}', headers={"Content-Type": kind})
    assert answer.status_code == 422
    assert "must be application/json" in answer.json()["detail"]


def test_a_content_type_may_name_its_character_set(served: Served) -> None:
    with served.client("client") as client:
        headers = {"Content-Type": "Application/JSON; charset=utf-8"}
        assert client.post("/api/v1/jobs", content=b'{"task": "t", "payload": {}}', headers=headers).status_code == 201


def test_who_is_not_let_in_is_not_read(served: Served) -> None:
    """Neither its size nor its form is looked at: there is but one thing to say."""
    for body in (b"[" * 1_000_000, b"\xff", b'{"worker_id": NaN}'):
        answer = http.post(f"{served.url}{WORKER}/reports", content=body, headers=JSON | bearer("nobody"))
        assert answer.status_code == 401
