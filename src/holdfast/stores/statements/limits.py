"""Queues: pausing them, and how many jobs of them may run."""

from __future__ import annotations

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


PAUSE_QUEUE = Statement("limits.pause_queue", _pause)
RESUME_QUEUE = Statement("limits.resume_queue", _resume)
LIMIT_QUEUE = Statement("limits.limit_queue", _limit)
