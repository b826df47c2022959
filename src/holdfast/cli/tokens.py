"""`holdfast tokens create`, `list`, `revoke`, `rotate` and `refusals`"""

from __future__ import annotations

from datetime import UTC, datetime
from typing import Annotated

import typer

from holdfast.cli import output
from holdfast.cli.ages import age
from holdfast.cli.session import Json, Session, begin, opened
from holdfast.domain import durations
from holdfast.domain.tokens import Issued, NewToken, Token, check_scopes

Name = Annotated[str, typer.Argument(metavar="NAME")]


def create(
    context: typer.Context,
    name: Name,
    scope: Annotated[
        list[str],
        typer.Option(metavar="worker|client|viewer|admin", help="What it may do; may be given more than once."),
    ],
    queues: Annotated[str | None, typer.Option(metavar="a,b", help="Only these queues; else all of them.")] = None,
    expires: Annotated[str | None, typer.Option(metavar="30d", help="For so long; else until it is revoked.")] = None,
    json: Json = False,
) -> None:
    """Make a token and print it, this once: the store keeps only a digest of it."""
    session = begin(context, json)
    named = None if queues is None else tuple(queue.strip() for queue in queues.split(","))
    seconds = None if expires is None else durations.seconds(expires, "--expires")
    new = NewToken(name, check_scopes(scope), named, seconds)
    with opened(session.settings(), create=True) as store:
        issued = store.create_token(new)
    _print_issued(session, issued)


def list_tokens(context: typer.Context, json: Json = False) -> None:
    """The tokens there are and were, by name; never the tokens themselves."""
    session = begin(context, json)
    with opened(session.settings()) as store:
        tokens = store.tokens()
    if session.json:
        output.document({"tokens": tokens})
    elif tokens:
        _print(tokens)
    else:
        output.remark("There is no token. Make one with: holdfast tokens create NAME --scope client")


def revoke(context: typer.Context, name: Name, json: Json = False) -> None:
    """Refuse a token from now on, on every control plane. Exit code 1 when there is no live token of that name."""
    session = begin(context, json)
    with opened(session.settings()) as store:
        token = store.revoke_token(name)
    if session.json:
        output.document(token)
    else:
        _print([token])


def rotate(context: typer.Context, name: Name, json: Json = False) -> None:
    """Give a token a new secret and print it; the old one is refused from now on. Its leases stay its own."""
    session = begin(context, json)
    with opened(session.settings()) as store:
        issued = store.rotate_token(name)
    _print_issued(session, issued)


def refusals(
    context: typer.Context,
    limit: Annotated[int, typer.Option(metavar="N", help="The latest N of them.")] = 50,
    json: Json = False,
) -> None:
    """Requests that control planes turned away: with whose token, why, where and from where."""
    session = begin(context, json)
    with opened(session.settings()) as store:
        found = store.access_refusals(limit)
    if session.json:
        output.document({"refusals": found})
    elif found:
        now = datetime.now(UTC)
        headers = ("last", "count", "reason", "token", "address", "route")
        output.table(
            headers, [(age(r.last_at, now), r.count, r.reason, r.credential, r.address, r.route) for r in found]
        )
    else:
        output.remark("Nobody was turned away.")


def _print_issued(session: Session, issued: Issued) -> None:
    """The token is alone on stdout, for `TOKEN=$(holdfast tokens create …)`."""
    token = issued.token
    if session.json:
        output.document(
            {
                "id": token.id,
                "name": token.name,
                "token": issued.text,
                "scopes": token.scopes,
                "queues": token.queues,
                "expires_at": token.expires_at,
            }
        )
        return
    output.plain(issued.text)
    output.remark("Keep it now: it is not shown again.")


def _print(tokens: list[Token]) -> None:
    now = datetime.now(UTC)
    headers = ("name", "scopes", "queues", "created", "last used", "expires", "", "id")
    output.table(headers, [_row(token, now) for token in tokens])


def _row(token: Token, now: datetime) -> tuple[object, ...]:
    return (
        token.name,
        ",".join(token.scopes),
        "all" if token.queues is None else ",".join(token.queues),
        age(token.rotated_at or token.created_at, now),
        age(token.last_used_at, now) or "never",
        age(token.expires_at, now) or "never",
        _standing(token, now),
        token.id,
    )


def _standing(token: Token, now: datetime) -> str | None:
    if token.revoked_at is not None:
        return "revoked"
    return "expired" if token.expires_at is not None and token.expires_at <= now else None
