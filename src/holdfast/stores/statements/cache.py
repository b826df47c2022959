"""The response cache. A value that is past its time, by the store's clock, is not there."""

from __future__ import annotations

from functools import cache

from holdfast.stores.statements.batches import delete_batch
from holdfast.stores.statements.words import Statement, Words


def _get(words: Words) -> str:
    return f"""
        SELECT c.value FROM holdfast_cache c
        WHERE c.source = :source AND c.key = :key AND c.expires_at > {words.now}"""


def _put(words: Words) -> str:
    value, ttl = ("CAST(:value AS json)", "CAST(:ttl AS float8)") if words.postgres else (":value", ":ttl")
    return f"""
        INSERT INTO holdfast_cache (source, key, value, stored_at, expires_at)
        VALUES (:source, :key, {value}, {words.now}, {words.after(ttl)})
        ON CONFLICT (source, key) DO UPDATE
        SET value = excluded.value, stored_at = excluded.stored_at, expires_at = excluded.expires_at"""


def _delete(words: Words, where: str, order: str = "") -> str:
    """A batch, without what is being written at this moment."""
    lock = "FOR UPDATE OF c SKIP LOCKED" if words.postgres else ""
    chosen = f"SELECT c.source, c.key FROM holdfast_cache c WHERE {where} {order} LIMIT :limit {lock}"
    return delete_batch("holdfast_cache", "source, key", chosen)


def _forget(words: Words) -> str:
    return _delete(words, f"c.expires_at <= {words.fixed_now}", "ORDER BY c.expires_at")


@cache
def clear(of_one_key: bool) -> Statement:
    where = "c.source = :source AND c.key = :key" if of_one_key else "c.source = :source"
    name = "one" if of_one_key else "all"
    return Statement(f"cache.clear.{name}", lambda words: _delete(words, where), replan=True)


GET = Statement("cache.get", _get)
PUT = Statement("cache.put", _put)
FORGET = Statement("cache.forget", _forget, replan=True)
