"""Guards on SQLite.

SQLite has no statement-level triggers and cannot change NEW. So an UPDATE typed by hand is caught BEFORE it happens:
the trigger writes the completed row itself, which passes the guard and leaves its audit row like any transition, and
then tells SQLite to skip the original (`RAISE(IGNORE)` skips this row only). And there is no trigger depth: the audit
log knows its own writer by what it writes, namely exactly the latest transition of the job's row, once.
"""

from __future__ import annotations

from holdfast.domain.lifecycle import ACTIVE, TERMINAL
from holdfast.stores import schema
from holdfast.stores.guards import rules, sqlite_limits, sqlite_webhooks
from holdfast.stores.types import SQLITE_NOW

_LATER = f"max({SQLITE_NOW}, OLD.updated_at)"
_LEAVES = "NEW.state <> 'running'"
_STARTS = "NEW.state = 'running' AND OLD.state <> 'running'"

# What the completed row holds where it is not simply the value that was typed.
_COMPLETED = {
    "seq": "OLD.seq + 1",
    "transition": rules.MANUAL_EVENT,
    "transition_detail": "json_object('manual', json('true'))",
    "updated_at": _LATER,
    "attempt": f"CASE WHEN {_STARTS} THEN OLD.attempt + 1 ELSE NEW.attempt END",
    "claimed_at": f"CASE WHEN {_STARTS} THEN {_LATER} ELSE NEW.claimed_at END",
    "started_at": f"CASE WHEN {_STARTS} THEN coalesce(OLD.started_at, {_LATER}) ELSE NEW.started_at END",
    "lease_owner": (
        f"CASE WHEN {_LEAVES} THEN NULL WHEN {_STARTS} THEN coalesce(NEW.lease_owner, 'manual')"
        " ELSE NEW.lease_owner END"
    ),
    "lease_token": f"CASE WHEN {_LEAVES} THEN NULL ELSE NEW.lease_token END",
    "lease_expires_at": f"CASE WHEN {_LEAVES} THEN NULL ELSE NEW.lease_expires_at END",
    "failures": (
        f"CASE WHEN {rules.REQUEUES} THEN 0 WHEN {rules.CHARGES_FAILURE} THEN OLD.failures + 1 ELSE NEW.failures END"
    ),
    "crashes": f"CASE WHEN {rules.REQUEUES} THEN 0 ELSE NEW.crashes END",
    "cancel_requested_at": (
        f"CASE WHEN {rules.REQUEUES} THEN NULL WHEN NEW.cancel_requested_at IS NULL THEN NULL"
        f" WHEN OLD.cancel_requested_at IS NULL THEN {_LATER} ELSE OLD.cancel_requested_at END"
    ),
    "finished_at": (f"CASE WHEN {rules.ENDS} THEN {_LATER} WHEN {rules.REQUEUES} THEN NULL ELSE NEW.finished_at END"),
}


# SQLite's columns take any kind of value; a word in the place of a number, or a BLOB as a name, would stop all claims.
_RIGHT_KINDS = (
    "typeof(NEW.task) = 'text' AND typeof(NEW.queue) = 'text' AND typeof(NEW.priority) = 'integer'"
    " AND typeof(NEW.source) IN ('null', 'text')"
    " AND typeof(NEW.max_attempts) = 'integer' AND typeof(NEW.max_crashes) = 'integer'"
    " AND typeof(NEW.lease_seconds) IN ('integer', 'real')"
    " AND typeof(NEW.timeout_seconds) IN ('null', 'integer', 'real')"
    f" AND NEW.run_after GLOB '{sqlite_limits.TIME_PATTERN}'"
)
_KEY_TAKEN = f"""(NEW.unique_key IS NOT NULL AND {schema.in_states(ACTIVE, "NEW.state")} AND EXISTS (
    SELECT 1 FROM holdfast_jobs other WHERE other.task = NEW.task AND other.unique_key = NEW.unique_key
      AND other.unique_key IS NOT NULL AND {schema.in_states(ACTIVE, "other.state")} AND other.id <> NEW.id))"""


def _completed_columns() -> str:
    names = [column.name for column in schema.jobs.columns if column.name != "id"]
    return ",\n      ".join(f"{name} = {_COMPLETED.get(name, f'NEW.{name}')}" for name in names)


def _refusal(message: str) -> str:
    escaped = message.replace("'", "''")
    return f"SELECT RAISE(ABORT, 'holdfast: {escaped}');"


def _triggers() -> dict[str, str]:
    audit_columns = "job_id, seq, at, event, from_state, to_state, attempt, worker, lease, detail"
    append_only = "the audit log is append-only and written by triggers"
    only_rises = "what holdfast_meta says of retired histories only rises"
    return {
        "holdfast_manual": f"""
  BEFORE UPDATE ON holdfast_jobs WHEN {rules.MANUAL_UPDATE} BEGIN
    UPDATE holdfast_jobs SET
      {_completed_columns()}
    WHERE id = OLD.id;
    SELECT RAISE(IGNORE);
  END""",
        "holdfast_guard": f"""
  BEFORE UPDATE ON holdfast_jobs
  WHEN ({rules.MANUAL_UPDATE}) IS NOT TRUE AND (NEW.rowid = OLD.rowid AND {rules.LEGAL_UPDATE}) IS NOT TRUE BEGIN
    {_refusal("this transition is not in the lifecycle")}
  END""",
        "holdfast_guard_insert": f"""
  BEFORE INSERT ON holdfast_jobs
  WHEN ({rules.FRESH_ROW} AND typeof(NEW.id) = 'text' AND length(NEW.id) = 36 AND NEW.id = lower(NEW.id)
        AND json_valid(NEW.payload) AND json_type(NEW.payload) = 'object' AND {_RIGHT_KINDS}
        AND {sqlite_webhooks.WELL_FORMED}) IS NOT TRUE BEGIN
    {_refusal("a job is inserted as pending, with a JSON object as payload (and as webhook) and a UUID as id")}
  END""",
        "holdfast_guard_kinds": f"""
  BEFORE UPDATE OF task, queue, source, priority, run_after, max_attempts, max_crashes, lease_seconds, timeout_seconds
  ON holdfast_jobs WHEN ({_RIGHT_KINDS}) IS NOT TRUE BEGIN
    {_refusal("a column was given the wrong kind of value; times look like 2026-11-15T20:50:59.123456Z")}
  END""",
        "holdfast_guard_payload": f"""
  BEFORE UPDATE OF payload ON holdfast_jobs
  WHEN (json_valid(NEW.payload) AND json_type(NEW.payload) = 'object') IS NOT TRUE BEGIN
    {_refusal("a payload is a JSON object")}
  END""",
        # A REPLACE deletes the rows in its way without firing a trigger, so it must not find any. The rowid is a key as
        # well: NEW.rowid is -1 here unless the statement names one.
        "holdfast_guard_replace_insert": f"""
  BEFORE INSERT ON holdfast_jobs WHEN EXISTS (SELECT 1 FROM holdfast_jobs WHERE id = NEW.id)
    OR EXISTS (SELECT 1 FROM holdfast_jobs WHERE rowid = NEW.rowid) OR {_KEY_TAKEN} BEGIN
    {_refusal("the id or the unique key is taken")}
  END""",
        # Also because the row of a retired history opens the audit log for its id.
        "holdfast_guard_retired": f"""
  BEFORE INSERT ON holdfast_jobs WHEN EXISTS (SELECT 1 FROM holdfast_retired_histories WHERE job_id = NEW.id) BEGIN
    {_refusal("the id was that of a job whose history has been retired; use a new one")}
  END""",
        "holdfast_guard_replace_update": f"""
  BEFORE UPDATE OF task, unique_key, state ON holdfast_jobs WHEN {_KEY_TAKEN} BEGIN
    {_refusal("the unique key is taken")}
  END""",
        "holdfast_guard_delete": f"""
  BEFORE DELETE ON holdfast_jobs WHEN ({rules.IS_TERMINAL}) IS NOT TRUE BEGIN
    {_refusal("only a finished job is deleted")}
  END""",
        "holdfast_audit_insert": f"""
  AFTER INSERT ON holdfast_jobs BEGIN
    INSERT INTO holdfast_events ({audit_columns})
    VALUES (NEW.id, 1, NEW.updated_at, 'enqueued', NULL, 'pending', 0, NULL, NULL, NEW.transition_detail);
  END""",
        "holdfast_audit_update": f"""
  AFTER UPDATE ON holdfast_jobs WHEN NEW.seq <> OLD.seq BEGIN
    INSERT INTO holdfast_events ({audit_columns})
    VALUES (NEW.id, NEW.seq, NEW.updated_at, NEW.transition, OLD.state, NEW.state, NEW.attempt,
            coalesce(NEW.lease_owner, OLD.lease_owner), coalesce(NEW.lease_token, OLD.lease_token),
            NEW.transition_detail);
  END""",
        "holdfast_audit_delete": f"""
  AFTER DELETE ON holdfast_jobs BEGIN
    INSERT INTO holdfast_events ({audit_columns})
    VALUES (OLD.id, OLD.seq + 1, {_LATER}, 'pruned', OLD.state, NULL, OLD.attempt, NULL, NULL,
            json_object('task', OLD.task, 'queue', OLD.queue));
  END""",
        "holdfast_events_insert": f"""
  BEFORE INSERT ON holdfast_events
  WHEN EXISTS (SELECT 1 FROM holdfast_events WHERE job_id = NEW.job_id AND seq = NEW.seq)
    OR NOT CASE WHEN NEW.event = 'pruned'
      THEN NOT EXISTS (SELECT 1 FROM holdfast_jobs WHERE id = NEW.job_id)
       AND EXISTS (SELECT 1 FROM holdfast_events
                   WHERE job_id = NEW.job_id AND seq = NEW.seq - 1 AND event <> 'pruned'
                     AND to_state = NEW.from_state AND {schema.in_states(TERMINAL, "to_state")})
      ELSE EXISTS (SELECT 1 FROM holdfast_jobs
                   WHERE id = NEW.job_id AND seq = NEW.seq AND transition = NEW.event AND updated_at = NEW.at) END
  BEGIN
    {_refusal(append_only)}
  END""",
        "holdfast_events_update": f"""
  BEFORE UPDATE ON holdfast_events BEGIN
    {_refusal(append_only)}
  END""",
        "holdfast_events_delete": f"""
  BEFORE DELETE ON holdfast_events
  WHEN NOT EXISTS (SELECT 1 FROM holdfast_retired_histories WHERE job_id = OLD.job_id) BEGIN
    {_refusal(append_only)}
  END""",
        "holdfast_retire_guard": f"""
  BEFORE INSERT ON holdfast_retired_histories
  WHEN EXISTS (SELECT 1 FROM holdfast_jobs WHERE id = NEW.job_id)
    OR NOT coalesce((SELECT max(event = 'pruned') FROM holdfast_events WHERE job_id = NEW.job_id), 1) BEGIN
    {_refusal("a history is retired only after its job was pruned")}
  END""",
        "holdfast_retire_update": f"""
  BEFORE UPDATE ON holdfast_retired_histories BEGIN
    {_refusal("a retired id stays: its row opens the audit log for it")}
  END""",
        # Not as one statement with ON CONFLICT: a REPLACE by hand cannot be told from it.
        "holdfast_retire": """
  AFTER INSERT ON holdfast_retired_histories BEGIN
    UPDATE holdfast_meta SET value = (
      SELECT json_object('through', max(json_extract(value, '$.through'), max(at)),
                         'jobs', json_extract(value, '$.jobs') + 1,
                         'events', json_extract(value, '$.events') + count(*))
      FROM holdfast_events WHERE job_id = NEW.job_id)
    WHERE key = 'histories_retired' AND EXISTS (SELECT 1 FROM holdfast_events WHERE job_id = NEW.job_id);
    INSERT INTO holdfast_meta (key, value)
    SELECT 'histories_retired', json_object('through', max(at), 'jobs', 1, 'events', count(*))
    FROM holdfast_events WHERE job_id = NEW.job_id
      AND NOT EXISTS (SELECT 1 FROM holdfast_meta WHERE key = 'histories_retired')
    GROUP BY job_id;
    DELETE FROM holdfast_retired_histories WHERE job_id = NEW.job_id
      AND NOT EXISTS (SELECT 1 FROM holdfast_events WHERE job_id = NEW.job_id);
    DELETE FROM holdfast_events WHERE job_id = NEW.job_id;
  END""",
        "holdfast_meta_replace": f"""
  BEFORE INSERT ON holdfast_meta WHEN EXISTS (
    SELECT 1 FROM holdfast_meta WHERE key IN ('histories_retired', 'retired_ids_through')
      AND (rowid = NEW.rowid OR (key = 'histories_retired' AND key = NEW.key))) BEGIN
    {_refusal(only_rises)}
  END""",
        "holdfast_meta_update": f"""
  BEFORE UPDATE ON holdfast_meta
  WHEN NEW.rowid <> OLD.rowid
    OR (NEW.key <> OLD.key AND NEW.key IN ('histories_retired', 'retired_ids_through'))
    OR OLD.key IN ('histories_retired', 'retired_ids_through') AND (
    NEW.key <> OLD.key OR CASE OLD.key
      WHEN 'retired_ids_through' THEN NEW.value < OLD.value
      ELSE CASE WHEN json_valid(NEW.value) THEN
        json_extract(NEW.value, '$.through') < json_extract(OLD.value, '$.through')
        OR json_extract(NEW.value, '$.jobs') < json_extract(OLD.value, '$.jobs')
        OR json_extract(NEW.value, '$.events') < json_extract(OLD.value, '$.events') END END IS NOT FALSE) BEGIN
    {_refusal(only_rises)}
  END""",
        "holdfast_meta_delete": f"""
  BEFORE DELETE ON holdfast_meta WHEN OLD.key IN ('histories_retired', 'retired_ids_through') BEGIN
    {_refusal(only_rises)}
  END""",
        **sqlite_limits.triggers(_refusal),
        **sqlite_webhooks.triggers(_refusal("a webhook is a JSON object with a text as url and an array as on")),
    }


ATTEMPTS_VIEW = """
CREATE VIEW holdfast_attempts AS
SELECT started.job_id, started.attempt, started.worker, started.at AS started_at, ended.at AS finished_at,
       ended.event AS outcome, json_extract(ended.detail, '$.error') AS error,
       json_extract(ended.detail, '$.exit_code') AS exit_code, json_extract(ended.detail, '$.signal') AS signal,
       coalesce(json_extract(ended.detail, '$.duration_ms'),
                cast(round((julianday(ended.at) - julianday(started.at)) * 86400000) AS integer)) AS duration_ms,
       json_extract(ended.detail, '$.cpu_ms') AS cpu_ms, json_extract(ended.detail, '$.max_rss_kb') AS max_rss_kb
FROM holdfast_events started
LEFT JOIN holdfast_events ended
  ON ended.job_id = started.job_id AND ended.attempt = started.attempt AND ended.seq > started.seq
 AND ended.from_state = 'running' AND ended.to_state <> 'running'
WHERE started.event = 'claimed'"""


def statements() -> list[str]:
    ddl = []
    for name, body in _triggers().items():
        ddl.append(f"DROP TRIGGER IF EXISTS {name}")
        ddl.append(f"CREATE TRIGGER {name}{body}")
    ddl.append("DROP VIEW IF EXISTS holdfast_attempts")
    ddl.append(ATTEMPTS_VIEW.strip())
    return ddl
