"""Credentials, and the record of refused attempts to use one.

A credential is live while it is neither revoked nor past its time, by the store's own clock. Rows with `single_use`
are one-time links: no request is ever authorised by one.
"""

from __future__ import annotations

from holdfast.stores.statements.words import Statement, Words

SHOWN = (
    "id",
    "name",
    "scopes",
    "queues",
    "created_at",
    "rotated_at",
    "expires_at",
    "revoked_at",
    "last_used_at",
)
_SHOWN = ", ".join(SHOWN)
_NEW = {
    "id": "text",
    "name": "text",
    "scopes": "json",
    "queues": "json",
    "secret_digest": "text",
    "expires_seconds": "float8",
}
_ATTEMPTED = {"credential": "text", "reason": "text", "route": "text", "address": "text", "count": "bigint"}
_LARGEST = 2_147_483_647
REFUSED = ("credential", "reason", "route", "address", "first_at", "last_at", "count")


def _live(words: Words, alias: str = "") -> str:
    return f"{alias}revoked_at IS NULL AND ({alias}expires_at IS NULL OR {alias}expires_at > {words.now})"


def _among(words: Words, parameter: str = "ids") -> str:
    if words.postgres:
        return f"= ANY (ARRAY(SELECT json_array_elements_text(CAST(:{parameter} AS json))))"
    return f"IN (SELECT value FROM json_each(:{parameter}))"


def _free_name(words: Words) -> str:
    """An expired credential keeps nobody from using its name again."""
    return f"""
        UPDATE holdfast_tokens SET revoked_at = expires_at
        WHERE name = :name AND revoked_at IS NULL AND expires_at <= {words.now}"""


def _create(words: Words, single_use: str = "false") -> str:
    expires = f"CASE WHEN r.expires_seconds IS NOT NULL THEN {words.after('r.expires_seconds')} END"
    return f"""
        INSERT INTO holdfast_tokens
          (id, name, scopes, queues, secret_digest, created_at, expires_at, single_use)
        SELECT r.id, r.name, r.scopes, r.queues, r.secret_digest, {words.now}, {expires}, {single_use}
        FROM {words.rows(_NEW)} {words.true_filter}
        RETURNING {_SHOWN}"""


def _create_link(words: Words) -> str:
    return _create(words, single_use="true")


def _forget_links(words: Words) -> str:
    """Links that nobody can use any more. Used ones stay on record as long as the last of them could be used."""
    return f"DELETE FROM holdfast_tokens WHERE single_use AND expires_at <= {words.now}"


def _link(words: Words) -> str:
    return f"SELECT secret_digest FROM holdfast_tokens WHERE id = :id AND single_use AND {_live(words)}"


def _use_link(words: Words) -> str:
    """One winner: whoever comes second finds it revoked, because the row is tested again under its lock."""
    return f"""
        UPDATE holdfast_tokens SET revoked_at = {words.now}, last_used_at = {words.now}
        WHERE id = :id AND single_use AND {_live(words)} RETURNING id"""


def _standings(words: Words) -> str:
    return f"""
        SELECT id, name, scopes, queues, ({_live(words)}), secret_digest FROM holdfast_tokens
        WHERE id {_among(words)} AND NOT single_use"""


def _list(_words: Words) -> str:
    return f"""
        SELECT {_SHOWN} FROM holdfast_tokens WHERE NOT single_use
        ORDER BY CASE WHEN revoked_at IS NULL THEN 0 ELSE 1 END, name, created_at, id"""


def _any_live(words: Words) -> str:
    return f"SELECT 1 FROM holdfast_tokens WHERE NOT single_use AND {_live(words)} LIMIT 1"


def _revoke(words: Words) -> str:
    return f"""
        UPDATE holdfast_tokens SET revoked_at = {words.now}
        WHERE name = :name AND revoked_at IS NULL AND NOT single_use RETURNING {_SHOWN}"""


def _rotate(words: Words) -> str:
    return f"""
        UPDATE holdfast_tokens SET secret_digest = :digest, rotated_at = {words.now}
        WHERE name = :name AND NOT single_use AND {_live(words)} RETURNING {_SHOWN}"""


def _touch(words: Words) -> str:
    age = words.after("-CAST(:age AS float8)" if words.postgres else "-:age")
    return f"""
        UPDATE holdfast_tokens SET last_used_at = {words.now}
        WHERE id {_among(words)} AND (last_used_at IS NULL OR last_used_at <= {age})"""


def _record(words: Words) -> str:
    """Once the table is full, attempts from addresses that are not in it are counted under one address for all."""
    return f"""
        WITH given AS (
          SELECT r.credential, r.reason, r.route, r.count,
                 CASE WHEN (SELECT count(*) FROM holdfast_access_refusals) < :most
                        OR EXISTS (SELECT 1 FROM holdfast_access_refusals f
                                   WHERE f.credential = r.credential AND f.reason = r.reason
                                     AND f.route = r.route AND f.address = r.address)
                      THEN r.address ELSE :others END AS address
          FROM {words.rows(_ATTEMPTED)})
        INSERT INTO holdfast_access_refusals AS a (credential, reason, route, address, first_at, last_at, count)
        SELECT credential, reason, route, address, {words.now}, {words.now}, {_counted(words, "sum(count)")}
        FROM given GROUP BY credential, reason, route, address ORDER BY credential, reason, route, address
        ON CONFLICT (credential, reason, route, address)
        DO UPDATE SET last_at = excluded.last_at, count = {_counted(words, "a.count", "excluded.count")}"""


def _counted(words: Words, *counts: str) -> str:
    """The count stays at the largest there is: it must not be what makes the record fail."""
    if words.postgres:
        total = " + ".join(f"CAST({count} AS bigint)" for count in counts)
        return f"CAST(least({total}, {_LARGEST}) AS integer)"
    return f"min({' + '.join(counts)}, {_LARGEST})"


def _refusals(_words: Words) -> str:
    return f"""
        SELECT {", ".join(REFUSED)} FROM holdfast_access_refusals
        ORDER BY last_at DESC, credential, reason, route, address LIMIT :limit"""


def _forget_refusals(words: Words) -> str:
    keep = words.after("-CAST(:keep AS float8)" if words.postgres else "-:keep")
    return f"DELETE FROM holdfast_access_refusals WHERE last_at < {keep}"


FREE_NAME = Statement("tokens.free_name", _free_name)
CREATE = Statement("tokens.create", _create)
CREATE_LINK = Statement("tokens.create_link", _create_link)
FORGET_LINKS = Statement("tokens.forget_links", _forget_links)
LINK = Statement("tokens.link", _link)
USE_LINK = Statement("tokens.use_link", _use_link)
STANDINGS = Statement("tokens.standings", _standings)
LIST = Statement("tokens.list", _list)
ANY_LIVE = Statement("tokens.any_live", _any_live)
REVOKE = Statement("tokens.revoke", _revoke)
ROTATE = Statement("tokens.rotate", _rotate)
TOUCH = Statement("tokens.touch", _touch)
RECORD = Statement("tokens.record", _record)
REFUSALS = Statement("tokens.refusals", _refusals)
FORGET_REFUSALS = Statement("tokens.forget_refusals", _forget_refusals)
