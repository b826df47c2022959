"""Signatures: what we send is what Standard Webhooks describes, and nothing else passes `verify`."""

import base64
import hashlib
import hmac
import json
from typing import Any

import pytest

from holdfast.domain.errors import ConfigurationError
from holdfast.webhooks import WrongSignature, verify
from holdfast.webhooks.signing import secrets_of, signed_headers

KEY = b"0123456789abcdef0123456789abcdef"
SECRET = "whsec_" + base64.b64encode(KEY).decode()
OTHER = "another secret of enough bytes".replace(" ", "-")
NOW = 1_700_000_000
BODY = json.dumps({"type": "job.succeeded", "data": {"name": "Zoë"}}).encode()


def signed(secret: str = SECRET, at: int = NOW) -> dict[str, str]:
    return signed_headers(secrets_of(secret), "msg_1", at, BODY)


def check(headers: dict[str, str], body: bytes = BODY, secret: Any = SECRET, **more: Any) -> dict[str, Any]:
    return verify(headers, body, secret, **{"now": float(NOW), **more})


def test_the_signature_is_the_one_anybody_can_compute() -> None:
    content = b"msg_1.1700000000." + BODY
    expected = base64.b64encode(hmac.new(KEY, content, hashlib.sha256).digest()).decode()
    assert signed() == {
        "webhook-id": "msg_1",
        "webhook-timestamp": "1700000000",
        "webhook-signature": f"v1,{expected}",
    }


def test_the_example_of_the_specification() -> None:
    headers = signed_headers(
        secrets_of("whsec_MfKQ9r8GKYqrTwjUPD8ILPZIo2LaLaSw"),
        "msg_p5jXN8AQM9LWM0D4loKWxJek",
        1614265330,
        b'{"test": 2432232314}',
    )
    assert headers["webhook-signature"] == "v1,g0hM9SsE+OTPJTGt/tmIKtSyZlE3uFJELVlNIOLJ1OE="


def test_verify_returns_the_message_whatever_the_case_of_the_headers() -> None:
    headers = {name.title(): value for name, value in signed().items()}
    assert check(headers)["data"] == {"name": "Zoë"}
    assert check(headers, BODY.decode())["type"] == "job.succeeded"  # type: ignore[arg-type]


def test_while_a_secret_takes_anothers_place_both_are_good() -> None:
    headers = signed(f"{OTHER} {SECRET}")
    assert headers["webhook-signature"].count("v1,") == 2
    for secret in (SECRET, OTHER, f"{OTHER} {SECRET}", [SECRET]):
        assert check(headers, secret=secret)
    assert check(signed(SECRET), secret=f"{OTHER} {SECRET}")


@pytest.mark.parametrize(
    ("changed", "says"),
    [
        ({"webhook-id": "msg_2"}, "does not fit"),
        ({"webhook-id": ""}, "webhook-id is missing"),
        ({"webhook-timestamp": str(NOW + 1)}, "does not fit"),
        ({"webhook-timestamp": "soon"}, "seconds"),
        ({"webhook-timestamp": f"0{NOW}"}, "seconds"),
        ({"webhook-timestamp": "\u0661\u0667"}, "seconds"),
        ({"webhook-signature": ""}, "is missing"),
        ({"webhook-signature": "v1,"}, "does not fit"),
        ({"webhook-signature": "v1,ünicode"}, "does not fit"),
        ({"webhook-signature": signed()["webhook-signature"].replace("v1,", "v2,")}, "does not fit"),
        ({"webhook-signature": signed(OTHER)["webhook-signature"]}, "does not fit"),
    ],
)
def test_a_header_that_was_changed_is_found(changed: dict[str, str], says: str) -> None:
    with pytest.raises(WrongSignature, match=says):
        check(signed() | changed)


def test_a_body_that_was_changed_is_found() -> None:
    with pytest.raises(WrongSignature, match="does not fit"):
        check(signed(), BODY + b" ")


@pytest.mark.parametrize("away", [-301, 301])
def test_an_old_message_and_one_from_the_future_are_refused(away: int) -> None:
    with pytest.raises(WrongSignature, match="away from now"):
        check(signed(at=NOW + away))
    assert check(signed(at=NOW + away), tolerance=302)


@pytest.mark.parametrize("secret", ["short", "whsec_c2hvcnQ=", "whsec_not base64 at all", "whsec_§", ""])
def test_a_secret_that_is_none_is_refused(secret: str) -> None:
    with pytest.raises(ConfigurationError, match="secret"):
        check(signed(), secret=[secret] if secret else "")
