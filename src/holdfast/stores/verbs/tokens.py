"""Make, rotate, revoke and look up credentials; keep the record of refused attempts."""

from __future__ import annotations

import json
import secrets
from collections.abc import Sequence
from dataclasses import asdict

from holdfast.domain.errors import Conflict, InvalidInput, NotFound
from holdfast.domain.names import check_integer, check_name
from holdfast.domain.spec import encode_json
from holdfast.domain.tokens import (
    ID_BYTES,
    SECRET_BYTES,
    AccessRefusal,
    Attempted,
    Issued,
    NewToken,
    Scope,
    Standing,
    Token,
    fits,
    secret_digest,
    token_parts,
    token_text,
)
from holdfast.stores import rows
from holdfast.stores.database import Database, Row, Transaction
from holdfast.stores.statements import tokens as sql
from holdfast.stores.statements.words import Statement

TOUCHED_AGAIN_AFTER = 60.0
MOST_REFUSALS = 10_000
OTHER_ADDRESSES = "*"
_LINK_NAME = "one-time admin link"


def create(database: Database, new: NewToken) -> Issued:
    try:
        with database.transaction() as transaction:
            transaction.run(sql.FREE_NAME, {"name": new.name})
            return _issue(transaction, sql.CREATE, new)
    except database.integrity_errors:
        raise Conflict(
            "name", f"there is a live token named {new.name!r}; revoke or rotate it, or take another name"
        ) from None


def _issue(transaction: Transaction, statement: Statement, new: NewToken) -> Issued:
    token_id, secret = secrets.token_hex(ID_BYTES), secrets.token_hex(SECRET_BYTES)
    values = {
        "id": token_id,
        "name": new.name,
        "scopes": new.scopes,
        "queues": new.queues,
        "secret_digest": secret_digest(secret),
        "expires_seconds": new.expires_seconds,
    }
    [row] = transaction.rows(statement, {"rows": encode_json([values])})
    return Issued(_token(row, transaction.dialect), token_text(token_id, secret))


def standings(database: Database, ids: Sequence[str]) -> dict[str, Standing]:
    """What is known of these credentials, in one query; an id that is not there is left out."""
    with database.reading() as transaction:
        found = transaction.rows(sql.STANDINGS, {"ids": json.dumps(list(ids))})
    return {row[0]: _standing(row, database.dialect) for row in found}


def tokens(database: Database) -> list[Token]:
    with database.reading() as transaction:
        return [_token(row, database.dialect) for row in transaction.rows(sql.LIST)]


def any_live(database: Database) -> bool:
    with database.reading() as transaction:
        return bool(transaction.rows(sql.ANY_LIVE))


def revoke(database: Database, name: str) -> Token:
    with database.statement() as transaction:
        found = transaction.rows(sql.REVOKE, {"name": check_name(name, "name")})
    return _token(_the_one(found, name), database.dialect)


def rotate(database: Database, name: str) -> Issued:
    """A new secret for the same credential; from now on the old one is nothing."""
    secret = secrets.token_hex(SECRET_BYTES)
    with database.statement() as transaction:
        parameters = {"name": check_name(name, "name"), "digest": secret_digest(secret)}
        found = transaction.rows(sql.ROTATE, parameters)
    token = _token(_the_one(found, name), database.dialect)
    return Issued(token, token_text(token.id, secret))


def _the_one(found: Sequence[Row], name: str) -> Row:
    if not found:
        raise NotFound(f"there is no live token named {name!r}; `holdfast tokens list` shows them all")
    return found[0]


def touch(database: Database, ids: Sequence[str]) -> None:
    """They were used just now; written at most once a minute, however many processes say so."""
    with database.statement() as transaction:
        transaction.run(sql.TOUCH, {"ids": json.dumps(sorted(ids)), "age": TOUCHED_AGAIN_AFTER})


def create_link(database: Database, seconds: float) -> Issued:
    """A code that is worth one admin token, once, for so long."""
    new = NewToken(f"{_LINK_NAME} {secrets.token_hex(4)}", (Scope.ADMIN,), None, seconds)
    with database.transaction() as transaction:
        transaction.run(sql.FORGET_LINKS)
        return _issue(transaction, sql.CREATE_LINK, new)


def use_link(database: Database, code: str) -> Issued | None:
    """The admin token for a code, to whoever brings it first; None when it is no good, or no longer."""
    parts = token_parts(code)
    if parts is None:
        return None
    link_id, secret = parts
    with database.transaction() as transaction:
        digests = [str(row[0]) for row in transaction.rows(sql.LINK, {"id": link_id})]
        if not digests or not fits(secret, digests[0]):
            return None
        if not transaction.rows(sql.USE_LINK, {"id": link_id}):
            return None
        return _issue(transaction, sql.CREATE, NewToken(f"admin-{secrets.token_hex(3)}", (Scope.ADMIN,)))


def record_refusals(database: Database, attempts: Sequence[Attempted], most: int) -> None:
    if not attempts:
        return
    parameters = {
        "rows": encode_json([asdict(attempt) for attempt in attempts]),
        "most": most,
        "others": OTHER_ADDRESSES,
    }
    with database.statement() as transaction:
        transaction.run(sql.RECORD, parameters)


def refusals(database: Database, limit: int) -> list[AccessRefusal]:
    check_integer(limit, "limit", 1, MOST_REFUSALS)
    with database.reading() as transaction:
        found = transaction.rows(sql.REFUSALS, {"limit": limit})
    return [AccessRefusal(**rows.decoded(sql.REFUSED, row, database.dialect)) for row in found]


def forget_refusals(database: Database, keep_seconds: float) -> None:
    if not keep_seconds >= 0:
        raise InvalidInput("keep", f"may not be negative, got {keep_seconds:g} s")
    with database.statement() as transaction:
        transaction.run(sql.FORGET_REFUSALS, {"keep": float(keep_seconds)})


def _token(row: Row, dialect: str) -> Token:
    values = rows.decoded(sql.SHOWN, row, dialect)
    queues = values["queues"]
    scopes = tuple(Scope(scope) for scope in values["scopes"])
    return Token(**{**values, "scopes": scopes, "queues": None if queues is None else tuple(queues)})


def _standing(row: Row, dialect: str) -> Standing:
    token_id, name, scopes, queues, live, digest = row
    allowed = frozenset(Scope(scope) for scope in rows.parsed(scopes, dialect))
    queues = rows.parsed(queues, dialect)
    return Standing(token_id, name, allowed, None if queues is None else tuple(queues), bool(live), digest)
