"""The signature of a message, as Standard Webhooks has it (https://www.standardwebhooks.com): made and verified here.

Signed are the id, the time and the very bytes of the body. The id is that of the delivery: it stays the same when a
message is sent again, so that a receiver can tell what it has had. The time is that of the sending, and an old one is
refused, so that a message somebody has recorded is of no use later.
"""

from __future__ import annotations

import base64
import binascii
import hashlib
import hmac
import json
import time
from collections.abc import Iterator, Mapping, Sequence
from typing import Any

from holdfast.domain.errors import ConfigurationError, HoldfastError

ID, TIMESTAMP, SIGNATURE = "webhook-id", "webhook-timestamp", "webhook-signature"
VERSION = "v1"
SECRET_PREFIX = "whsec_"  # what follows it is base64; a secret without it is taken as it is
SHORTEST_SECRET_BYTES = 24
MOST_SIGNATURES = 20  # that a receiver looks at


class WrongSignature(HoldfastError):
    """The message is not from whom it claims to be, was changed on its way, or is old."""


def secrets_of(text: str | Sequence[str]) -> tuple[bytes, ...]:
    """One secret or several with spaces between them: while one takes another's place, both sign and both are taken."""
    words = text.split() if isinstance(text, str) else list(text)
    return tuple(_secret(word) for word in words)


def _secret(word: str) -> bytes:
    try:
        key = _from_base64(word.removeprefix(SECRET_PREFIX)) if word.startswith(SECRET_PREFIX) else word.encode()
    except (binascii.Error, ValueError):
        raise ConfigurationError(f"a webhook secret that begins with {SECRET_PREFIX} must go on in base64") from None
    if len(key) < SHORTEST_SECRET_BYTES:
        raise ConfigurationError(
            f"a webhook secret must be at least {SHORTEST_SECRET_BYTES} bytes long, this one has {len(key)};"
            f" make one with: echo {SECRET_PREFIX}$(openssl rand -base64 32)"
        )
    return key


def _from_base64(text: str) -> bytes:
    return base64.b64decode(text + "=" * (-len(text) % 4), validate=True)


def signed_headers(secrets: Sequence[bytes], message_id: str, timestamp: int, body: bytes) -> dict[str, str]:
    signatures = " ".join(f"{VERSION},{_signature(secret, message_id, timestamp, body)}" for secret in secrets)
    return {ID: message_id, TIMESTAMP: str(timestamp), SIGNATURE: signatures}


def _signature(secret: bytes, message_id: str, timestamp: int, body: bytes) -> str:
    content = f"{message_id}.{timestamp}.".encode() + body
    return base64.b64encode(hmac.digest(secret, content, hashlib.sha256)).decode()


def verify(
    headers: Mapping[str, str],
    body: bytes | str,
    secret: str | Sequence[str],
    tolerance: float = 300,
    *,
    now: float | None = None,
) -> dict[str, Any]:
    """The message, once it is sure that it comes from who has the secret; else WrongSignature says what is wrong.

    `body` is what arrived, byte by byte, before anything has parsed it. The clocks may differ by `tolerance` seconds.
    """
    secrets = secrets_of(secret)
    if not secrets:
        raise ConfigurationError("no secret was given to verify the webhook with")
    found = {str(name).lower(): value for name, value in headers.items()}
    message_id, timestamp = _header(found, ID), _header(found, TIMESTAMP)
    content = body.encode() if isinstance(body, str) else bytes(body)
    sent = _seconds(timestamp)
    if abs((time.time() if now is None else now) - sent) > tolerance:
        raise WrongSignature(f"{TIMESTAMP} is more than {tolerance:g} s away from now: the message is old, or a clock")
    given = list(_given(_header(found, SIGNATURE)))
    wanted = [_signature(key, message_id, sent, content) for key in secrets]
    # Every pair is compared, each in constant time: how long it takes says nothing about what was nearly right.
    matches = [hmac.compare_digest(ours.encode(), theirs.encode()) for ours in wanted for theirs in given]
    if not any(matches):
        raise WrongSignature(f"{SIGNATURE} does not fit the message and the secret")
    return _message(content)


def _header(headers: Mapping[str, str], name: str) -> str:
    value = headers.get(name)
    if not value:
        raise WrongSignature(f"the header {name} is missing")
    return value


def _seconds(text: str) -> int:
    if not (text.isascii() and text.isdecimal() and len(text) <= 15 and str(int(text)) == text):
        raise WrongSignature(f"{TIMESTAMP} must be seconds since 1970")
    return int(text)


def _given(header: str) -> Iterator[str]:
    for word in header.split(" ")[:MOST_SIGNATURES]:
        version, _, signature = word.partition(",")
        if version == VERSION:
            yield signature


def _message(content: bytes) -> dict[str, Any]:
    try:
        message = json.loads(content)
    except (ValueError, RecursionError):
        message = None
    if not isinstance(message, dict):
        raise WrongSignature("the body is signed, but is no JSON object")
    return message
