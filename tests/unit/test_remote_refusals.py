"""What a control plane refuses becomes the error that a store would have raised."""

from __future__ import annotations

import json

import pytest

from holdfast.domain.errors import TooLarge
from holdfast.remote.refusals import error_for

ONE_VALUE = {"detail": "payload: is 300,000 bytes", "field": "payload", "limit_bytes": 262_144}


@pytest.mark.parametrize(
    ("body", "field", "limit"),
    [
        (json.dumps(ONE_VALUE), "payload", 262_144),
        (json.dumps({"detail": "send less", "limit_bytes": 1_048_576}), "body", 1_048_576),
        ("<html>a proxy's own page</html>", "body", None),
    ],
)
def test_too_large_says_what_and_how_much_there_may_be(body: str, field: str, limit: int | None) -> None:
    error = error_for(413, body.encode(), "https://example.com", waits=False)
    assert isinstance(error, TooLarge)
    assert (error.field, error.limit_bytes) == (field, limit)
    assert not error.rule.startswith("payload:")
