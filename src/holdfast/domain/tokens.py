"""Bearer tokens: their form, what they allow, and how one is made.

A token is `hf_<id>_<secret>`. The id names the credential: it is the key of its row, appears in listings and in the
record of refused attempts, and leases belong to it, so that a new secret keeps them. The secret authorises; the store
keeps only its digest. It is random and 256 bits long, so that a plain hash is enough: there is nothing to guess.
"""

from __future__ import annotations

import hashlib
import hmac
import re
from collections.abc import Iterable
from dataclasses import dataclass, field
from datetime import datetime
from enum import StrEnum

from holdfast.domain.errors import InvalidInput
from holdfast.domain.names import check_name

ID_BYTES = 8
SECRET_BYTES = 32
MAX_QUEUES = 1000
TOKEN_PATTERN = rf"hf_[0-9a-f]{{{2 * ID_BYTES}}}_[0-9a-f]{{{2 * SECRET_BYTES}}}"

_TOKEN = re.compile(rf"hf_([0-9a-f]{{{2 * ID_BYTES}}})_([0-9a-f]{{{2 * SECRET_BYTES}}})", re.ASCII)


class Scope(StrEnum):
    """What a token may do. They add up; `admin` has all of them."""

    WORKER = "worker"  # claim, heartbeat, report: /internal/worker
    CLIENT = "client"  # all of /api/v1 but the tokens
    VIEWER = "viewer"  # what only reads
    ADMIN = "admin"  # everything


@dataclass(frozen=True, slots=True)
class Token:
    """A credential as it is shown: everything but its secret. `queues` is None for all of them."""

    id: str
    name: str
    scopes: tuple[Scope, ...]
    queues: tuple[str, ...] | None
    created_at: datetime
    rotated_at: datetime | None
    expires_at: datetime | None
    revoked_at: datetime | None
    last_used_at: datetime | None


@dataclass(frozen=True, slots=True)
class Issued:
    """A credential at the only moment at which its token is known."""

    token: Token
    text: str = field(repr=False)


@dataclass(frozen=True, slots=True)
class Standing:
    """What the store knows of a credential when somebody presents its token. `live`: neither revoked nor expired."""

    id: str
    name: str
    scopes: frozenset[Scope]
    queues: tuple[str, ...] | None
    live: bool
    secret_digest: str = field(repr=False)


@dataclass(frozen=True, slots=True)
class NewToken:
    """What is asked for when a token is made. The rules are checked here, before anything is stored."""

    name: str
    scopes: tuple[Scope, ...]
    queues: tuple[str, ...] | None = None
    expires_seconds: float | None = None

    def __post_init__(self) -> None:
        check_name(self.name, "name")
        object.__setattr__(self, "scopes", check_scopes(self.scopes))
        if self.queues is not None:
            object.__setattr__(self, "queues", _check_queues(self.queues))
            if Scope.ADMIN in self.scopes:
                raise InvalidInput("queues", "an admin token may do everything; leave out either admin or the queues")
        if self.expires_seconds is not None and not self.expires_seconds > 0:
            raise InvalidInput("expires", f"must be a time from now on, got {self.expires_seconds:g} s")


@dataclass(frozen=True, slots=True)
class Attempted:
    """One kind of refused request, and how often it came. `credential` is '' where nobody was recognised."""

    credential: str
    reason: str
    route: str
    address: str
    count: int = 1


@dataclass(frozen=True, slots=True)
class AccessRefusal:
    """The same as it is on record."""

    credential: str
    reason: str
    route: str
    address: str
    first_at: datetime
    last_at: datetime
    count: int


def check_scopes(scopes: Iterable[str]) -> tuple[Scope, ...]:
    known = ", ".join(Scope)
    found = []
    for scope in scopes:
        if scope not in tuple(Scope):
            raise InvalidInput("scope", f"must be one of {known}, got {str(scope)[:40]!r}")
        found.append(Scope(scope))
    if not found:
        raise InvalidInput("scope", f"a token without one allows nothing: name at least one of {known}")
    return tuple(scope for scope in Scope if scope in found)


def _check_queues(queues: Iterable[str]) -> tuple[str, ...]:
    found = tuple(dict.fromkeys(check_name(queue, "queues") for queue in queues))
    if not found:
        raise InvalidInput("queues", "name at least one, or leave them out for all queues")
    if len(found) > MAX_QUEUES:
        raise InvalidInput("queues", f"must be at most {MAX_QUEUES}, got {len(found)}")
    return found


def token_text(token_id: str, secret: str) -> str:
    return f"hf_{token_id}_{secret}"


def token_parts(text: str) -> tuple[str, str] | None:
    """Id and secret; None for anything that is not a whole token, letter by letter."""
    found = _TOKEN.fullmatch(text)
    return (found[1], found[2]) if found else None


def secret_digest(secret: str) -> str:
    return hashlib.sha256(secret.encode()).hexdigest()


def fits(secret: str, digest: str) -> bool:
    """Whether it is the secret of that digest, in a time that does not depend on where they differ."""
    return hmac.compare_digest(secret_digest(secret), digest)
