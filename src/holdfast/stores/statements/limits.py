"""Queues and sources: pausing, limits, and the record of every change to a source."""

from __future__ import annotations

from functools import cache

from holdfast.stores.statements.words import Statement, Words


def _pause(words: Words) -> str:
    return f"""
        INSERT INTO holdfast_queues AS q (name, paused_at, updated_at) VALUES (:name, {words.now}, {words.now})
        ON CONFLICT (name) DO UPDATE
        SET paused_at = coalesce(q.paused_at, excluded.paused_at), updated_at = {words.now}"""


def _resume(words: Words) -> str:
    return f"""
        INSERT INTO holdfast_queues AS q (name, updated_at) VALUES (:name, {words.now})
        ON CONFLICT (name) DO UPDATE SET paused_at = NULL, updated_at = {words.now}"""


def _limit(words: Words) -> str:
    limit = "CAST(:max_running AS integer)" if words.postgres else ":max_running"
    return f"""
        INSERT INTO holdfast_queues AS q (name, max_running, updated_at) VALUES (:name, {limit}, {words.now})
        ON CONFLICT (name) DO UPDATE SET max_running = excluded.max_running, updated_at = {words.now}"""


SOURCE_LIMITS = {
    "enabled": "boolean",
    "rate_limit_per_minute": "float8",
    "burst": "integer",
    "max_concurrent": "integer",
    "paused_until": "timestamptz",
    "breaker_threshold": "integer",
    "breaker_pause_seconds": "float8",
}


def _create_source(words: Words) -> str:
    return f"""
        INSERT INTO holdfast_sources (name, bucket_at, created_at, updated_at)
        VALUES (:name, {words.now}, {words.now}, {words.now}) ON CONFLICT (name) DO NOTHING"""


@cache
def change_source(names: tuple[str, ...]) -> Statement:
    """An update of just these limits; a bucket whose burst shrank is capped by the reading side."""

    def build(words: Words) -> str:
        cast = {name: f"CAST(:{name} AS {kind})" for name, kind in SOURCE_LIMITS.items()}
        changes = ", ".join(f"{name} = {cast[name] if words.postgres else f':{name}'}" for name in names)
        return f"UPDATE holdfast_sources SET {changes}, updated_at = {words.now} WHERE name = :name"

    return Statement(f"limits.change_source.{'.'.join(names)}", build)


def _record(words: Words) -> str:
    detail = "CAST(:detail AS json)" if words.postgres else ":detail"
    return f"""
        INSERT INTO holdfast_source_events (source, at, event, detail)
        VALUES (:source, {words.now}, :event, {detail})"""


def _sources(words: Words) -> str:
    one = "CAST(:name AS text)" if words.postgres else ":name"
    return f"""
        SELECT name, enabled, rate_limit_per_minute, burst, max_concurrent, failure_streak, last_success_at,
               last_failure_at, paused_until
        FROM holdfast_sources WHERE {one} IS NULL OR name = {one} ORDER BY name"""


PAUSE_QUEUE = Statement("limits.pause_queue", _pause)
RESUME_QUEUE = Statement("limits.resume_queue", _resume)
LIMIT_QUEUE = Statement("limits.limit_queue", _limit)
CREATE_SOURCE = Statement("limits.create_source", _create_source)
RECORD_SOURCE_EVENT = Statement("limits.record_source_event", _record)
SOURCES = Statement("limits.sources", _sources)
