"""The reaper's clock and its reading.

A tick is a compare-and-set on the duty's row: one winner per period, who is told whether anything runs at all. A gap
between ticks longer than `gap` seconds means that the store, or every reaper, was away; its end is recorded, and
nothing is reaped before one full lease of its own after that (`settle.expired`).

A previous tick in the future means that the clock was set back; it is kept in `detail` (`verbs/clock_step.py`).
"""

from __future__ import annotations

from holdfast.domain.lifecycle import State
from holdfast.domain.schedule import CLOCK_SLACK_SECONDS
from holdfast.stores.schema import still_in
from holdfast.stores.statements.settle import expired
from holdfast.stores.statements.words import Statement, Words

# Keys of the reaper's `detail`.
CLOCK_WAS_AT = "clock_was_at"
CHECK = "check"


def _ago(words: Words, parameter: str) -> str:
    return words.after(f"-CAST(:{parameter} AS float8)" if words.postgres else f"-:{parameter}")


def _tick(words: Words) -> str:
    """Returns whether anything runs, what is known of a clock that was ahead, and the time."""
    as_json, prefix = ("json_build_object", "d.") if words.postgres else ("json_object", "")
    is_ahead = f"d.ticked_at > {words.after(str(CLOCK_SLACK_SECONDS))}"
    check = f"{as_json}('{CHECK}', 'future')"
    return f"""
        INSERT INTO holdfast_duties AS d (name, ticked_at, holder, detail)
        VALUES ('reaper', {words.now}, :holder, {check})
        ON CONFLICT (name) DO UPDATE
        SET outage_ended_at = CASE WHEN d.ticked_at < {_ago(words, "gap")} OR d.outage_ended_at > {words.now}
                              THEN {words.now} ELSE d.outage_ended_at END,
            detail = CASE WHEN {is_ahead} THEN {as_json}('{CLOCK_WAS_AT}', d.ticked_at)
                          WHEN d.ticked_at < {_ago(words, "gap")} THEN {check} ELSE d.detail END,
            ticked_at = {words.now}, holder = :holder
        WHERE d.ticked_at <= {_ago(words, "period")} OR {is_ahead}
        RETURNING EXISTS (SELECT 1 FROM holdfast_jobs WHERE state = 'running'), {prefix}detail, {prefix}ticked_at"""


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
