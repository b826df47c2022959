"""End leases: every outcome in one statement, each under its own token.

The WHERE names the job, its state, its attempt and its token; a row that does not match was lost, and is looked into
afterwards. "Once a cancel is requested every outcome but success lands in cancelled" is decided here, on the row as it
is at that moment. Locked rows are skipped and asked for again by the caller: no verb ever waits for a row lock while
it holds others, so there is nothing to deadlock on and no neighbour to stall.

The reaper's form repeats its own test (expired, and past the grace after an outage) inside the update.
"""

from __future__ import annotations

from holdfast.domain.breaker import SUCCESS_NOTED_EVERY_SECONDS
from holdfast.domain.lifecycle import TERMINAL, State
from holdfast.stores.schema import in_states, still_in
from holdfast.stores.statements.words import Statement, Words

ROW = {
    "id": "uuid",
    "attempt": "integer",
    "token": "text",
    "event": "text",
    "state": "text",
    "failures": "integer",
    "crashes": "integer",
    "delay": "float8",
    "error": "json",
    "detail": "json",
    "cancel_detail": "json",
    "result": "json",
    "result_ref": "text",
    "progress": "json",
}
_OVERRULED = "(j.cancel_requested_at IS NOT NULL AND r.state <> 'succeeded')"


def expired(words: Words, alias: str = "j") -> str:
    """Past its lease and, after an outage, past one full lease of its own since the outage ended."""
    grace = words.after(f"{alias}.lease_seconds", "d.outage_ended_at")
    return f"""{alias}.lease_expires_at < {words.now} AND NOT EXISTS (
          SELECT 1 FROM holdfast_duties d
          WHERE d.name = 'reaper' AND d.outage_ended_at IS NOT NULL AND {grace} > {words.now})"""


def _settle(words: Words, test: str) -> str:
    ends = in_states(TERMINAL, "r.state")
    return f"""
        WITH held AS MATERIALIZED (
          SELECT r.* FROM {words.rows(ROW)} JOIN holdfast_jobs j ON j.id = r.id
          WHERE {still_in(State.RUNNING)} AND j.lease_token = r.token AND j.attempt = r.attempt {test}
          {words.skip_locked})
        UPDATE holdfast_jobs AS j
        SET state = CASE WHEN {_OVERRULED} THEN 'cancelled' ELSE r.state END,
            transition = CASE WHEN {_OVERRULED} THEN 'cancelled' ELSE r.event END,
            transition_detail = CASE WHEN {_OVERRULED} THEN r.cancel_detail ELSE r.detail END,
            seq = j.seq + 1, updated_at = {words.transition_time},
            failures = j.failures + CASE WHEN {_OVERRULED} THEN 0 ELSE r.failures END,
            crashes = j.crashes + CASE WHEN {_OVERRULED} THEN 0 ELSE r.crashes END,
            run_after = CASE WHEN r.delay IS NULL OR {_OVERRULED} THEN j.run_after
                             WHEN r.delay > 0 THEN {words.after("r.delay")} ELSE {words.now} END,
            result = CASE WHEN r.state = 'succeeded' THEN r.result ELSE j.result END,
            result_ref = coalesce(r.result_ref, j.result_ref),
            last_error = coalesce(r.error, j.last_error), progress = coalesce(r.progress, j.progress),
            lease_owner = NULL, lease_token = NULL, lease_expires_at = NULL,
            finished_at = CASE WHEN {ends} OR {_OVERRULED} THEN {words.transition_time} END
        FROM held AS r WHERE j.id = r.id
        RETURNING {words.returning("transition", "state", "source")}"""


def calm(words: Words) -> str:
    """Whose source has nothing to learn from one more success: `domain/breaker.py`, `matters`."""
    noted = words.after(str(SUCCESS_NOTED_EVERY_SECONDS), "s.last_success_at")
    return f"""AND (j.source IS NULL OR NOT EXISTS (
          SELECT 1 FROM holdfast_sources s WHERE s.name = j.source
          AND (s.failure_streak > 0 OR s.last_success_at IS NULL OR {noted} < {words.now})))"""


def _standing(words: Words) -> str:
    return f"""
        SELECT {words.as_text("j.id")}, j.failures, j.crashes, j.max_attempts, j.max_crashes, j.retry,
               j.cancel_requested_at IS NOT NULL
        FROM holdfast_jobs j WHERE j.id {words.is_one_of()} AND {still_in(State.RUNNING)}"""


def _snoozed(words: Words) -> str:
    """What the snoozes of these jobs add up to, since each was enqueued or last requeued."""
    delay = "e.detail ->> '$.delay_seconds'"
    if words.postgres:  # a row that was typed by hand may say anything
        said = "e.detail -> 'delay_seconds'"
        delay = f"CASE WHEN json_typeof({said}) = 'number' THEN CAST(CAST({said} AS text) AS float8) END"
    return f"""
        SELECT {words.as_text("e.job_id")}, coalesce(sum({delay}), 0.0) FROM holdfast_events e
        WHERE e.job_id {words.is_one_of()} AND e.event = 'snoozed' AND e.seq > coalesce((
          SELECT max(r.seq) FROM holdfast_events r WHERE r.job_id = e.job_id AND r.event = 'requeued'), 0)
        GROUP BY e.job_id"""


def _succeed(words: Words) -> str:
    """Plain successes: on Postgres in one call (`routines/succeed.py`), on SQLite in one statement, for which the
    programs of the triggers are set up once. Its rows are short arrays: to read the general form out of JSON took as
    long as to write one row after the other."""
    if words.postgres:
        return "SELECT holdfast_succeed(:ids, :attempts, :tokens, :details, :results)"
    return f"""
        UPDATE holdfast_jobs AS j
        SET state = 'succeeded', transition = 'succeeded', seq = j.seq + 1, transition_detail = r.detail,
            result = r.result, updated_at = {words.transition_time}, finished_at = {words.transition_time},
            lease_owner = NULL, lease_token = NULL, lease_expires_at = NULL
        FROM (SELECT value ->> 0 AS id, value ->> 1 AS attempt, value ->> 2 AS token, value ->> 3 AS detail,
                     value ->> 4 AS result FROM json_each(:rows)) AS r
        WHERE j.id = r.id AND {still_in(State.RUNNING)} AND j.lease_token = r.token
          AND j.attempt = r.attempt {calm(words)}
        RETURNING {words.returning()}"""


SUCCEED = Statement("settle.succeed", _succeed)
SETTLE = Statement("settle", lambda words: _settle(words, ""), replan=True)
SETTLE_CALM = Statement("settle.calm", lambda words: _settle(words, calm(words)), replan=True)
REAP = Statement("reap", lambda words: _settle(words, f"AND {expired(words)}"), replan=True)
STANDING = Statement("settle.standing", _standing, replan=True)
SNOOZED = Statement("settle.snoozed", _snoozed)
