"""Digests that stand in for secrets and reports in the store.

The store keeps only the digest of a lease token: whoever can read the database, a backup or the audit log cannot act
as the lease's holder. A report's digest lets a repeated report be recognised without keeping it.
"""

from __future__ import annotations

import hmac
from dataclasses import fields
from hashlib import sha256

from holdfast.domain.outcome import Failed, Outcome, Succeeded
from holdfast.domain.spec import canonical_json

DIGEST_HEX = 32  # 128 bits


def lease_token(secret: bytes, job_id: str) -> str:
    """The token of one job in a claim: derived, so that a claim of a thousand jobs needs one secret.

    Nobody can get from one job's token to another's without the secret, which never leaves the claiming call.
    """
    return sha256(secret + bytes.fromhex(job_id.replace("-", ""))).hexdigest()


def token_digest(token: str, credential: str = "") -> str:
    """Of the token and of whoever claimed with it: a lease is of no use to the holder of another credential."""
    bound = f"{token}.{credential}" if credential else token
    return sha256(bound.encode("utf-8", "surrogatepass")).hexdigest()[:DIGEST_HEX]


def binding(credential: str) -> str:
    """What is digested after a token. Who has the database itself claims without a credential."""
    return f".{credential}" if credential else ""


def request_digest(request_id: str) -> str:
    return sha256(request_id.encode()).hexdigest()


def lock_key(*names: str) -> int:
    """A number of 64 bits for what these name."""
    return int.from_bytes(sha256("\0".join(names).encode()).digest()[:8], "big", signed=True)


def request_secret(request_id: str, credential: str, nonce: str) -> bytes:
    """The secret of a claim that can be asked for again: the store keeps the nonce, the asker the id."""
    return hmac.digest(request_id.encode(), f"{credential}.{nonce}".encode(), "sha256")


def report_digest(outcome: Outcome, field: str = "report") -> str:
    """`field` names the report in the error that a value JSON cannot hold leads to."""
    if isinstance(outcome, Succeeded) and outcome.result is None and outcome.result_ref is None:
        return _PLAIN_SUCCESS_DIGEST
    return _digest(outcome, field)


def _digest(outcome: Outcome, field: str) -> str:
    content = {"outcome": type(outcome).__name__} | {f.name: getattr(outcome, f.name) for f in fields(outcome)}
    if isinstance(outcome, Failed):
        content["error"] = outcome.error.to_json()
    for name in ("throttled", "told"):  # a plain report has the digest that it had before there were such things
        if not content.get(name, True):
            del content[name]
    return sha256(canonical_json(content, field)).hexdigest()[:DIGEST_HEX]


# By far the most frequent report says nothing but that it went well.
_PLAIN_SUCCESS_DIGEST = _digest(Succeeded(), "report")
