"""Who is asking, and whether he may.

Every request is authenticated, on loopback, too. The credential is read from the store for each of them, so that one
that is revoked, rotated or expired is refused from that moment on; requests that come together share a query. A store
that does not answer is a 503: neither a yes nor a no.

What is said to the outside is the same whatever was wrong with a token; the record of refusals (`refusals.py`) says
which. Guessing is hopeless (256 bits). The bound on failures of an address is for failures alone: a token is looked up
first, so that nobody is shut out by a neighbour behind one proxy, and look-ups that come together cost one query.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass
from functools import cache

from fastapi import Request
from fastapi.openapi.models import HTTPBearer as BearerModel
from fastapi.security.base import SecurityBase

from holdfast.domain.tokens import Scope, Standing, fits, secret_digest, token_parts
from holdfast.serve.batching import Batch
from holdfast.serve.limits import Buckets
from holdfast.serve.plane import Plane
from holdfast.serve.problems import Refused
from holdfast.serve.refusals import Minutes, address_of
from holdfast.serve.revocations import Revocations

REALM = 'Bearer realm="holdfast"'
_NOBODY = secret_digest("")


@dataclass(frozen=True, slots=True)
class Identity:
    """The credential of a request. `queues` is None for all of them."""

    id: str
    name: str
    scopes: frozenset[Scope]
    queues: tuple[str, ...] | None

    def may(self, scopes: Iterable[Scope]) -> bool:
        return Scope.ADMIN in self.scopes or not self.scopes.isdisjoint(scopes)

    def may_use(self, queue: str) -> bool:
        return self.queues is None or queue in self.queues

    def check_queues(self, queues: Iterable[str]) -> None:
        """403 unless it may use each of them."""
        for queue in queues:
            if not self.may_use(queue):
                raise Refused(403, "Not for this token", f"this token is limited to other queues than {queue[:200]!r}")


class Authentication:
    def __init__(self, plane: Plane, minutes: Minutes) -> None:
        limits = plane.settings.limits
        self._plane = plane
        self._minutes = minutes
        # Nothing is remembered: each gets the answer of a query that began after it asked.
        self._standings = Batch(self._load)
        self._rates = Buckets(limits.requests_per_second, limits.burst)
        self._failures = Buckets(limits.failures_per_second, limits.failure_burst)
        self.revocations = Revocations(self._load)

    async def _load(self, ids: Sequence[str]) -> list[Standing | None]:
        found = await self._plane.tokens.call(lambda store: store.standings(sorted(set(ids))))
        return [found.get(token_id) for token_id in ids]

    async def identify(self, request: Request) -> Identity:
        """The credential of the request's bearer token; 401, or 429 where there are too many."""
        given = request.headers.getlist("authorization")
        parts = _bearer(given)
        if parts is None:
            raise self._unknown(request, "malformed_token" if given else "no_token")
        return await self._identify(request, parts)

    async def identify_text(self, request: Request, token: str) -> Identity:
        """The same for a token that was not sent as a bearer: a form's, or a cookie's."""
        parts = token_parts(token)
        if parts is None:
            raise self._unknown(request, "malformed_token")
        return await self._identify(request, parts)

    async def _identify(self, request: Request, parts: tuple[str, str]) -> Identity:
        token_id, secret = parts
        [standing] = await self._standings([token_id])
        is_right = fits(secret, _NOBODY if standing is None else standing.secret_digest)
        if standing is None:
            raise self._unknown(request, "unknown_token")
        if not is_right or not standing.live:
            request.state.credential = standing.id
            raise self._unknown(request, "not_live" if is_right else "wrong_secret")
        return self._admit(request, standing)

    def _admit(self, request: Request, standing: Standing) -> Identity:
        identity = Identity(standing.id, standing.name, standing.scopes, standing.queues)
        request.state.identity = identity
        wait = self._rates.take(identity.id)
        if wait:
            raise _too_many("this credential sends more requests than it may", wait)
        self._minutes.used(identity.id)
        return identity

    def check_address(self, request: Request) -> None:
        """429 while too many requests of this address have failed."""
        wait = self._failures.wait(address_of(request.scope))
        if wait:
            request.state.refusal = "too_many_failures"
            raise _too_many("too many requests from this address had no valid token", wait)

    def failed(self, request: Request, reason: str) -> None:
        """One more."""
        self.check_address(request)
        self._failures.take(address_of(request.scope))
        request.state.refusal = reason

    def _unknown(self, request: Request, reason: str) -> Refused:
        self.failed(request, reason)
        return Refused(
            401,
            "A valid token is needed",
            "send one header, `Authorization: Bearer hf_…`, with a token that is whole and neither revoked nor expired;"
            " `holdfast tokens create NAME --scope SCOPE` makes one",
            {"WWW-Authenticate": REALM},
        )


def _bearer(given: list[str]) -> tuple[str, str] | None:
    """Id and secret of the one bearer token there is. The scheme's case does not matter, the token's does."""
    if len(given) != 1:
        return None
    scheme, _space, text = given[0].partition(" ")
    return token_parts(text) if scheme.lower() == "bearer" else None


def _too_many(why: str, wait: float) -> Refused:
    seconds = max(1, math.ceil(wait))
    return Refused(429, "Too many requests", f"{why}; ask again in {seconds} s", {"Retry-After": str(seconds)})


def get_authentication(request: Request) -> Authentication:
    authentication = request.app.state.authentication
    assert isinstance(authentication, Authentication)
    return authentication


class Allowed(SecurityBase):
    """A dependency that gives the Identity of a request whose credential has one of the scopes."""

    def __init__(self, scopes: frozenset[Scope]) -> None:
        self.scopes = scopes
        self.model = BearerModel(description="A token of `holdfast tokens create`.")
        self.scheme_name = "bearer"

    async def __call__(self, request: Request) -> Identity:
        identity: Identity | None = getattr(request.state, "identity", None)
        if identity is None:
            identity = await get_authentication(request).identify(request)
        if not identity.may(self.scopes):
            request.state.refusal = "wrong_scope"
            needed = " or ".join(sorted({*self.scopes, Scope.ADMIN}))
            challenge = f'{REALM}, error="insufficient_scope", scope="{" ".join(sorted(self.scopes))}"'
            raise Refused(
                403,
                "Not for this token",
                f"this needs a token with scope {needed}; this one has {', '.join(sorted(identity.scopes))}",
                {"WWW-Authenticate": challenge},
            )
        return identity


@cache
def _allowed(scopes: frozenset[Scope]) -> Allowed:
    return Allowed(scopes)


def allowed(*scopes: Scope) -> Callable[..., object]:
    """`identity: Annotated[Identity, Depends(allowed(Scope.CLIENT))]`; `admin` is always among them."""
    return _allowed(frozenset(scopes))
