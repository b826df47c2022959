"""Bound the effect of a store clock that was set back.

A row was written by a clock that was ahead if its own timestamps lie more than `CLOCK_SLACK_SECONDS` in the future. The
statements change nothing else, so a second run changes nothing. `run_after` and `lease_expires_at` belong to no
transition: the guards allow the change and the audit log has no row for it.

- Leases: a full lease from now. The worker that holds one counts from its last heartbeat, so it stops before that.
- Claimable jobs: what was due stays due; a retry or a snooze keeps the rest of its delay. A start time that had not
  come is left alone: it names a time of day.
- Sources: the bucket refills from now, a pause by the breaker or by Retry-After keeps its rest.
- Workers: the last heartbeat is now at the latest, so that a dead worker does not count as alive.

`:was_at` is the latest time that the clock is known to have shown.
"""

from __future__ import annotations

from holdfast.domain.lifecycle import CLAIMABLE
from holdfast.domain.schedule import CLOCK_SLACK_SECONDS
from holdfast.domain.sources import PausedBy
from holdfast.stores.schema import in_states
from holdfast.stores.statements.admission import seconds_between
from holdfast.stores.statements.words import Statement, Words

ROUNDING_SECONDS = 1  # delays are stored to the millisecond, and SQLite's date arithmetic has no more
_GRANTED = "coalesce(j.heartbeat_at, j.claimed_at)"
_RELATIVE_PAUSES = f"'{PausedBy.BREAKER}', '{PausedBy.RETRY_AFTER}'"


def ahead(words: Words) -> str:
    """Times after this one were written by a clock that was ahead."""
    return words.after(str(CLOCK_SLACK_SECONDS), words.fixed_now)


def _latest_event(words: Words) -> str:
    return f"SELECT max(e.at) FROM holdfast_events e WHERE e.at > {ahead(words)}"


def _note(words: Words) -> str:
    detail = "CAST(:detail AS json)" if words.postgres else ":detail"
    return f"UPDATE holdfast_duties SET detail = {detail} WHERE name = 'reaper'"


def _is_lease_ahead(words: Words) -> str:
    longest = words.after(f"j.lease_seconds + {ROUNDING_SECONDS}", words.fixed_now)
    return f"j.state = 'running' AND {_GRANTED} > {ahead(words)} AND j.lease_expires_at > {longest}"


def _leases_ahead(words: Words) -> str:
    return f"SELECT 1 FROM holdfast_jobs j WHERE {_is_lease_ahead(words)} LIMIT 1"


def _correct_leases(words: Words) -> str:
    return f"""
        WITH granted AS MATERIALIZED (
          SELECT j.id FROM holdfast_jobs j WHERE {_is_lease_ahead(words)} LIMIT :limit {words.skip_locked})
        UPDATE holdfast_jobs AS j SET lease_expires_at = {words.after("j.lease_seconds")}
        FROM granted AS g WHERE j.id = g.id RETURNING {words.returning()}"""


def _delay(words: Words) -> str:
    """Seconds of delay that the last transition gave the job; null where it gave none. Hand-typed JSON may differ."""
    if words.postgres:
        stored = "j.transition_detail -> 'delay_seconds'"
        return f"CASE WHEN json_typeof({stored}) = 'number' THEN CAST(CAST({stored} AS text) AS float8) END"
    stored = "json_extract(j.transition_detail, '$.delay_seconds')"
    return f"CASE WHEN json_valid(j.transition_detail) AND typeof({stored}) IN ('integer', 'real') THEN {stored} END"


def _correct_jobs(words: Words) -> str:
    greatest = "greatest" if words.postgres else "max"
    now, was_at = words.fixed_now, words.moment("was_at")
    delayed_at = words.after(f"-({_delay(words)})", "j.run_after")
    was_delayed = f"delayed_at > {ahead(words)} AND delayed_at <= {words.after(str(ROUNDING_SECONDS), 'updated_at')}"
    step = seconds_between(words, now, f"{greatest}(delayed_at, {was_at})")
    remaining = words.after(f"-({step})", "run_after")
    return f"""
        WITH candidates AS MATERIALIZED (
          SELECT j.id, j.run_after, j.updated_at, {delayed_at} AS delayed_at FROM holdfast_jobs j
          WHERE {in_states(CLAIMABLE, "j.state")} AND j.run_after > {now} AND j.updated_at > {ahead(words)}),
        chosen AS MATERIALIZED (
          SELECT id, CASE WHEN delayed_at IS NULL THEN {now} ELSE {greatest}({now}, {remaining}) END AS corrected
          FROM candidates
          WHERE CASE WHEN delayed_at IS NULL THEN run_after <= {greatest}(updated_at, {was_at}) ELSE {was_delayed} END
          LIMIT :limit),
        held AS MATERIALIZED (
          SELECT j.id, c.corrected FROM chosen c JOIN holdfast_jobs j ON j.id = c.id
          WHERE {in_states(CLAIMABLE, "j.state")} {words.skip_locked})
        UPDATE holdfast_jobs AS j SET run_after = h.corrected
        FROM held AS h WHERE j.id = h.id RETURNING {words.returning()}"""


def _correct_sources(words: Words) -> str:
    greatest = "greatest" if words.postgres else "max"
    now = words.fixed_now
    step = seconds_between(words, now, f"{greatest}(s.updated_at, {words.moment('was_at')})")
    lock = "FOR NO KEY UPDATE OF s SKIP LOCKED" if words.postgres else ""

    def at_latest_now(column: str) -> str:
        return f"{column} = CASE WHEN s.{column} > {ahead(words)} THEN {now} ELSE s.{column} END"

    return f"""
        WITH written AS MATERIALIZED (
          SELECT s.name FROM holdfast_sources s WHERE s.bucket_at > {ahead(words)} OR s.updated_at > {ahead(words)}
          {lock})
        UPDATE holdfast_sources AS s
        SET paused_until = CASE WHEN s.updated_at > {ahead(words)} AND s.paused_by IN ({_RELATIVE_PAUSES})
                           THEN {words.after(f"-({step})", "s.paused_until")} ELSE s.paused_until END,
            {", ".join(map(at_latest_now, ("bucket_at", "last_success_at", "last_failure_at", "updated_at")))}
        FROM written AS w WHERE s.name = w.name RETURNING {"s.name" if words.postgres else "name"}"""


def _correct_workers(words: Words) -> str:
    return f"UPDATE holdfast_workers SET beat_at = {words.now} WHERE beat_at > {ahead(words)}"


# On Postgres, for a transaction: without fresh statistics the planner would read the whole table.
BY_INDEX = Statement("clock_step.by_index", lambda _words: "SET LOCAL enable_seqscan = off")
LATEST_EVENT = Statement("clock_step.latest_event", _latest_event, replan=True)
NOTE = Statement("clock_step.note", _note)
LEASES_AHEAD = Statement("clock_step.leases_ahead", _leases_ahead, replan=True)
CORRECT_LEASES = Statement("clock_step.correct_leases", _correct_leases, replan=True)
CORRECT_JOBS = Statement("clock_step.correct_jobs", _correct_jobs, replan=True)
CORRECT_SOURCES = Statement("clock_step.correct_sources", _correct_sources)
CORRECT_WORKERS = Statement("clock_step.correct_workers", _correct_workers)
