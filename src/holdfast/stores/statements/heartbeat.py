"""Renew many leases in one statement.

A row that somebody has locked is skipped, so that one user transaction on one job cannot hold up the heartbeats of
all the others. No indexed column changes.
"""

from __future__ import annotations

from holdfast.stores.statements.words import Statement, Words


def _heartbeat(words: Words) -> str:
    beats = words.rows({"id": "uuid", "attempt": "integer", "token": "text", "progress": "json"})
    return f"""
        WITH beat AS MATERIALIZED (SELECT * FROM {beats}),
        held AS MATERIALIZED (
          SELECT j.id FROM holdfast_jobs j JOIN beat ON j.id = beat.id
          WHERE j.state = 'running' AND j.lease_token = beat.token AND j.attempt = beat.attempt
          {words.skip_locked})
        UPDATE holdfast_jobs AS j
        SET heartbeat_at = {words.now}, lease_expires_at = {words.after("j.lease_seconds")},
            progress = coalesce(beat.progress, j.progress)
        FROM held JOIN beat ON beat.id = held.id
        WHERE j.id = held.id
        RETURNING {words.returning("lease_expires_at", "lease_seconds", "cancel_requested_at")}"""


HEARTBEAT = Statement("heartbeat", _heartbeat)
