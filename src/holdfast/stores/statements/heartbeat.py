"""Renew many leases in one statement.

A row that somebody has locked is skipped, so that one user transaction on one job cannot hold up the heartbeats of
all the others. No indexed column changes.
"""

from __future__ import annotations

from holdfast.domain.lifecycle import State
from holdfast.stores.schema import still_in
from holdfast.stores.statements.words import Statement, Words


def _heartbeat(words: Words) -> str:
    beats = words.rows({"id": "uuid", "attempt": "integer", "token": "text", "progress": "json"})
    return f"""
        WITH held AS MATERIALIZED (
          SELECT r.* FROM {beats} JOIN holdfast_jobs j ON j.id = r.id
          WHERE {still_in(State.RUNNING)} AND j.lease_token = r.token AND coalesce(r.attempt, j.attempt) = j.attempt
          {words.skip_locked})
        UPDATE holdfast_jobs AS j
        SET heartbeat_at = {words.now}, lease_expires_at = {words.after("j.lease_seconds")},
            progress = coalesce(r.progress, j.progress)
        FROM held AS r WHERE j.id = r.id
        RETURNING {words.returning("lease_token", "lease_expires_at", "lease_seconds", "cancel_requested_at")}"""


HEARTBEAT = Statement("heartbeat", _heartbeat, replan=True)
