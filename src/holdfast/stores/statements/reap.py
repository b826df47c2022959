"""The reaper's clock and its reading.

A tick is a compare-and-set on the duty's row: one winner per period, who is told whether anything runs at all. A gap
between ticks longer than `gap` seconds means that the store, or every reaper, was away; its end is recorded, and
nothing is reaped before one full lease of its own after that (`settle.expired`).
"""

from __future__ import annotations

from holdfast.domain.lifecycle import State
from holdfast.stores.schema import still_in
from holdfast.stores.statements.settle import expired
from holdfast.stores.statements.words import Statement, Words


def _ago(words: Words, parameter: str) -> str:
    return words.after(f"-CAST(:{parameter} AS float8)" if words.postgres else f"-:{parameter}")


def _tick(words: Words) -> str:
    return f"""
        INSERT INTO holdfast_duties AS d (name, ticked_at, holder)
        VALUES ('reaper', {words.now}, :holder)
        ON CONFLICT (name) DO UPDATE
        SET outage_ended_at = CASE WHEN d.ticked_at < {_ago(words, "gap")} OR d.outage_ended_at > {words.now}
                              THEN {words.now} ELSE d.outage_ended_at END,
            ticked_at = {words.now}, holder = :holder
        WHERE d.ticked_at <= {_ago(words, "period")}
           OR d.ticked_at > {words.after("60")}
        RETURNING EXISTS (SELECT 1 FROM holdfast_jobs WHERE state = 'running')"""


def _note_outage(words: Words) -> str:
    """For whoever is about to reap without being the reaper: a missed tick counts for it, too; once."""
    return f"""
        UPDATE holdfast_duties SET outage_ended_at = {words.now}
        WHERE name = 'reaper' AND ticked_at < {_ago(words, "gap")}
          AND (outage_ended_at IS NULL OR outage_ended_at <= ticked_at)"""


def _expired(words: Words) -> str:
    return f"""
        SELECT {words.as_text("j.id")}, j.queue, j.attempt, j.lease_token, j.failures, j.crashes, j.max_attempts,
               j.max_crashes, j.retry, j.cancel_requested_at IS NOT NULL
        FROM holdfast_jobs j
        WHERE j.state = 'running' AND {expired(words)}
          AND (j.queue, j.id) > (:queue, {words.id()})
        ORDER BY j.queue, j.id LIMIT :page"""


def _expired_these(words: Words) -> str:
    return f"""
        SELECT {words.as_text("j.id")}, j.queue, j.attempt, j.lease_token, j.failures, j.crashes, j.max_attempts,
               j.max_crashes, j.retry, j.cancel_requested_at IS NOT NULL
        FROM holdfast_jobs j
        WHERE j.id {words.is_one_of()} AND {still_in(State.RUNNING)} AND {expired(words)}"""


TICK = Statement("reap.tick", _tick)
NOTE_OUTAGE = Statement("reap.note_outage", _note_outage)
EXPIRED = Statement("reap.expired", _expired)
EXPIRED_THESE = Statement("reap.expired_these", _expired_these)
