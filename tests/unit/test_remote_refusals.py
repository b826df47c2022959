"""What a control plane refuses becomes the error that a store would have raised."""

from __future__ import annotations

import json

import pytest

from holdfast.domain.errors import (
    Conflict,
    HoldfastError,
    InvalidInput,
    NotAllowed,
    NotFound,
    StoreUnavailable,
    TooLarge,
    is_away,
    proves_bad_content,
)
from holdfast.remote.refusals import error_for

OURS = {"type": "about:blank", "title": "Too large", "status": 413}
ONE_VALUE = {**OURS, "detail": "payload: is 300,000 bytes", "field": "payload", "limit_bytes": 262_144}


@pytest.mark.parametrize(
    ("body", "field", "limit"),
    [
        (json.dumps(ONE_VALUE), "payload", 262_144),
        (json.dumps({**OURS, "detail": "send less", "limit_bytes": 1_048_576}), "body", 1_048_576),
        ("<html>a proxy's own page</html>", "body", None),
    ],
)
def test_too_large_says_what_and_how_much_there_may_be(body: str, field: str, limit: int | None) -> None:
    error = error_for(413, body.encode(), "https://example.com", waits=False)
    assert isinstance(error, TooLarge)
    assert (error.field, error.limit_bytes) == (field, limit)
    assert not error.rule.startswith("payload:")


def problem(status: int, **members: object) -> bytes:
    return json.dumps({"type": "about:blank", "title": "No", "status": status, "detail": "x: no", **members}).encode()


FOREIGN = [
    b"",
    b"<html>no</html>",
    b'{"detail": "Not Found"}',
    b'{"message": "no", "status": "error"}',
    b'{"title": "Nope", "status": 418, "detail": "of another response"}',
    b'{"type": "about:blank", "title": "Not Found", "status": %d, "detail": "No route.", "instance": "/x"}',
    b'{"type": "https://example.com/errors/no-route", "title": "No", "status": %d, "detail": "No route."}',
    b"[1]",
    b"[" * 100_000,
]


@pytest.mark.parametrize("body", FOREIGN, ids=lambda body: body[:30].decode())
@pytest.mark.parametrize(
    "status", [300, 302, 400, 403, 404, 405, 409, 410, 415, 422, 429, 451, 500, 501, 502, 503, 511, 599]
)
def test_any_response_that_is_not_a_control_planes_own_means_unavailable(status: int, body: bytes) -> None:
    error = error_for(status, body.replace(b"%d", b"%d" % status), "https://example.com", waits=True)
    assert isinstance(error, StoreUnavailable), error
    assert not proves_bad_content(error)


def test_every_5xx_means_unavailable_also_as_a_problem() -> None:
    for status in range(500, 600):
        assert isinstance(error_for(status, problem(status, field="result"), "", waits=False), StoreUnavailable)


@pytest.mark.parametrize(
    ("body", "away"),
    [
        (problem(503, failed="request"), False),
        (problem(503), True),
        (b'{"failed": "request"}', True),
    ],
    ids=["one request failed", "the store is away", "not sent by a control plane"],
)
def test_503_that_names_the_request_does_not_count_as_a_store_that_is_away(body: bytes, away: bool) -> None:
    error = error_for(503, body, "https://example.com", waits=True)
    assert isinstance(error, StoreUnavailable)
    assert is_away(error) == away
    if not away:
        assert str(error) == "https://example.com answered 503: x: no"


@pytest.mark.parametrize(
    ("status", "members", "kind", "proof"),
    [
        (413, {"field": "result", "limit_bytes": 10}, TooLarge, True),
        (413, {"limit_bytes": 10}, TooLarge, True),
        (413, {}, TooLarge, False),
        (422, {"field": "result"}, InvalidInput, True),
        (422, {}, HoldfastError, False),
        (400, {"field": "result"}, HoldfastError, False),
        (403, {}, NotAllowed, False),
        (404, {}, NotFound, False),
        (405, {}, HoldfastError, False),
        (409, {"field": "id"}, Conflict, False),
    ],
)
def test_a_problem_of_a_control_plane_says_what_is_wrong(
    status: int, members: dict[str, object], kind: type[Exception], proof: bool
) -> None:
    error = error_for(status, problem(status, **members), "", waits=True)
    assert (type(error), proves_bad_content(error)) == (kind, proof)


def test_a_413_of_a_proxy_proves_nothing_about_the_content() -> None:
    assert not proves_bad_content(error_for(413, b"<html>", "https://example.com", waits=True))
