"""`/api/v1/tokens` and `/api/v1/access-refusals`: who may ask, and who was turned away. For admins."""

from __future__ import annotations

from datetime import datetime
from typing import Annotated

from fastapi import APIRouter, Depends, Query
from pydantic import BaseModel, ConfigDict, Field

from holdfast.domain.tokens import AccessRefusal, Issued, NewToken, Scope, Token
from holdfast.serve.auth import allowed
from holdfast.serve.body import StrictRoute
from holdfast.serve.plane import PlaneDep
from holdfast.serve.problems import PROBLEMS

LONGEST_LIFE = 10 * 365 * 86_400

router = APIRouter(
    prefix="/api/v1",
    tags=["tokens"],
    route_class=StrictRoute,
    dependencies=[Depends(allowed(Scope.ADMIN))],
    responses=PROBLEMS,
)


class TokenView(BaseModel):
    """A credential, without its secret. `queues` is null for all of them."""

    id: str
    name: str
    scopes: list[Scope]
    queues: list[str] | None
    created_at: datetime
    rotated_at: datetime | None
    expires_at: datetime | None
    revoked_at: datetime | None
    last_used_at: datetime | None


class TokenList(BaseModel):
    tokens: list[TokenView]


class TokenRequest(BaseModel):
    model_config = ConfigDict(extra="forbid", strict=True)

    name: str = Field(min_length=1, max_length=200)
    # Not strict: in JSON a scope is its name.
    scopes: Annotated[list[Annotated[Scope, Field(strict=False)]], Field(min_length=1, max_length=len(Scope))]
    queues: Annotated[list[str], Field(min_length=1, max_length=1000)] | None = None
    expires_seconds: Annotated[float, Field(gt=0, le=LONGEST_LIFE)] | None = None


class IssuedToken(BaseModel):
    """The only answer in which the token is: it cannot be read again."""

    id: str
    name: str
    token: str = Field(repr=False)
    scopes: list[Scope]
    queues: list[str] | None
    expires_at: datetime | None


class AccessRefusalView(BaseModel):
    """Requests that were turned away for one reason. `credential` is empty where nobody was recognised."""

    credential: str
    reason: str
    route: str
    address: str
    first_at: datetime
    last_at: datetime
    count: int


class AccessRefusalList(BaseModel):
    refusals: list[AccessRefusalView]


@router.get("/tokens")
async def list_tokens(plane: PlaneDep) -> TokenList:
    found = await plane.reads.call(lambda store: store.tokens())
    return TokenList(tokens=[_view(token) for token in found])


@router.post("/tokens", status_code=201)
async def create_token(body: TokenRequest, plane: PlaneDep) -> IssuedToken:
    queues = None if body.queues is None else tuple(body.queues)
    new = NewToken(body.name, tuple(body.scopes), queues, body.expires_seconds)
    return _issued(await plane.writes.call(lambda store: store.create_token(new)))


@router.post("/tokens/{name:path}/rotate")
async def rotate_token(name: str, plane: PlaneDep) -> IssuedToken:
    """A new secret; the old one is refused from now on. Leases stay: they belong to the credential."""
    return _issued(await plane.writes.call(lambda store: store.rotate_token(name)))


@router.post("/tokens/{name:path}/revoke")
async def revoke_token(name: str, plane: PlaneDep) -> TokenView:
    """Refused from now on, wherever it is used."""
    return _view(await plane.writes.call(lambda store: store.revoke_token(name)))


@router.get("/access-refusals")
async def access_refusals(plane: PlaneDep, limit: Annotated[int, Query(ge=1, le=1000)] = 100) -> AccessRefusalList:
    found = await plane.reads.call(lambda store: store.access_refusals(limit))
    return AccessRefusalList(refusals=[_refusal(refusal) for refusal in found])


def _view(token: Token) -> TokenView:
    return TokenView.model_validate(token, from_attributes=True)


def _issued(issued: Issued) -> IssuedToken:
    token = issued.token
    return IssuedToken(
        id=token.id,
        name=token.name,
        token=issued.text,
        scopes=list(token.scopes),
        queues=None if token.queues is None else list(token.queues),
        expires_at=token.expires_at,
    )


def _refusal(refusal: AccessRefusal) -> AccessRefusalView:
    return AccessRefusalView.model_validate(refusal, from_attributes=True)
