"""Guards on Postgres.

Measured, on Postgres 15: audit and guard are one statement-level trigger with a single join of the transition tables.
As a row trigger's WHEN clause the guard was read from its text and prepared anew in every statement, which took a
quarter of a millisecond; an EXISTS over a second join of the transition tables is quadratic in the batch. The
completion of hand-typed updates fires only when the state changed and `seq` did not. BEFORE ROW triggers run in name
order, and each sees what the one before it made of NEW.

Who retires histories, by whatever hand, leaves a trace of how many and up to when in `holdfast_meta`: verify reads it.
"""

from __future__ import annotations

import re

from holdfast.stores import routines, schema
from holdfast.stores.guards import postgres_partitions, postgres_webhooks, rules
from holdfast.stores.types import POSTGRES_UUID7

FOUNDATION = (
    "CREATE OR REPLACE FUNCTION holdfast_now() RETURNS timestamptz LANGUAGE sql VOLATILE AS 'SELECT clock_timestamp()'",
    f"CREATE OR REPLACE FUNCTION holdfast_uuid7() RETURNS uuid LANGUAGE sql VOLATILE AS $$SELECT {POSTGRES_UUID7}$$",
)

_LEGAL_PAIR = rules.LEGAL_UPDATE.replace("NEW.", "n.").replace("OLD.", "o.")
_WELL_MADE = f"{rules.FRESH_ROW} AND json_typeof(NEW.payload) = 'object' AND {postgres_webhooks.WELL_FORMED}".replace(
    "NEW.", "n."
)
# As of a constraint: what is not known to be false holds. The columns are those of `n`, whatever stands beside it.
_COLUMN = re.compile(rf"\b(?:{'|'.join(column.name for column in schema.jobs.c)})\b")
_RULES = {name: _COLUMN.sub(lambda column: f"n.{column[0]}", rule) for name, rule in schema.JOB_RULES}
_WITHIN_BOUNDS = f"({' AND '.join(f'({rule})' for rule in _RULES.values())}) IS NOT FALSE"


def _refusals() -> str:
    return "\n".join(
        f"""  IF ({rule}) IS FALSE THEN
    RAISE EXCEPTION USING ERRCODE = 'check_violation', TABLE = 'holdfast_jobs', CONSTRAINT = 'holdfast_jobs_{name}',
      MESSAGE = 'holdfast: job ' || job_id || ' breaks holdfast_jobs_{name}: {stated.replace("'", "''")}';
  END IF;"""
        for (name, rule), (_, stated) in zip(_RULES.items(), schema.JOB_RULES, strict=True)
    )


_FUNCTIONS = (
    """
CREATE OR REPLACE FUNCTION holdfast_refuse_job() RETURNS trigger LANGUAGE plpgsql AS $$
BEGIN
  IF TG_OP = 'UPDATE' THEN
    RAISE EXCEPTION USING ERRCODE = 'check_violation', MESSAGE = 'holdfast: job ' || OLD.id || ': ' || OLD.state
      || ' -> ' || NEW.state || ' (' || NEW.transition || ') is not in the lifecycle';
  ELSE
    RAISE EXCEPTION USING ERRCODE = 'check_violation', MESSAGE = 'holdfast: job ' || OLD.id || ' is ' || OLD.state
      || '; only a finished job is deleted';
  END IF;
END $$""",
    """
CREATE OR REPLACE FUNCTION holdfast_refuse_payload() RETURNS trigger LANGUAGE plpgsql AS $$
BEGIN
  RAISE EXCEPTION USING ERRCODE = 'check_violation', MESSAGE = 'holdfast: job ' || OLD.id
    || ': a payload is a JSON object';
END $$""",
    """
CREATE OR REPLACE FUNCTION holdfast_refuse_statement() RETURNS trigger LANGUAGE plpgsql AS $$
BEGIN
  RAISE EXCEPTION USING ERRCODE = 'check_violation', MESSAGE = 'holdfast: ' || TG_OP || ' of ' || TG_TABLE_NAME
    || ' is refused: its rows are kept by the engine alone';
END $$""",
    f"""
CREATE OR REPLACE FUNCTION holdfast_complete_manual_update() RETURNS trigger LANGUAGE plpgsql AS $$
BEGIN
  NEW.seq := OLD.seq + 1;
  NEW.transition := {rules.MANUAL_EVENT};
  IF NEW.transition = 'none' THEN
    PERFORM holdfast_refuse_move(OLD.id, OLD.state, NEW.state, 'none');
  END IF;
  NEW.transition_detail := json_build_object('manual', true, 'role', session_user);
  NEW.updated_at := greatest(holdfast_now(), OLD.updated_at);
  IF NEW.state = 'running' AND OLD.state <> 'running' THEN
    NEW.attempt := OLD.attempt + 1;
    NEW.claimed_at := NEW.updated_at;
    NEW.started_at := coalesce(OLD.started_at, NEW.updated_at);
    NEW.lease_owner := coalesce(NEW.lease_owner, 'manual');
  ELSIF NEW.state <> 'running' THEN
    NEW.lease_owner := NULL; NEW.lease_token := NULL; NEW.lease_expires_at := NULL;
  END IF;
  IF NEW.cancel_requested_at IS NOT NULL AND OLD.cancel_requested_at IS NULL THEN
    NEW.cancel_requested_at := NEW.updated_at;
  END IF;
  IF {rules.CHARGES_FAILURE} THEN
    NEW.failures := OLD.failures + 1;
  END IF;
  IF {rules.REQUEUES} THEN
    NEW.failures := 0; NEW.crashes := 0; NEW.cancel_requested_at := NULL; NEW.finished_at := NULL;
  END IF;
  IF {rules.ENDS} THEN
    NEW.finished_at := NEW.updated_at;
  END IF;
  RETURN NEW;
END $$""",
    """
CREATE OR REPLACE FUNCTION holdfast_refuse_new() RETURNS boolean LANGUAGE plpgsql AS $$
BEGIN
  RAISE EXCEPTION USING ERRCODE = 'check_violation',
    MESSAGE = 'holdfast: a job is inserted as pending, with a JSON object as payload (and as webhook, with url and on)';
END $$""",
    f"""
CREATE OR REPLACE FUNCTION holdfast_refuse_values(job_id uuid) RETURNS boolean LANGUAGE plpgsql AS $$
DECLARE
  n holdfast_jobs;
BEGIN
  SELECT * INTO n FROM holdfast_jobs WHERE id = job_id;
{_refusals()}
  RAISE EXCEPTION USING ERRCODE = 'check_violation', MESSAGE = 'holdfast: job ' || job_id || ' is out of bounds';
END $$""",
    f"""
CREATE OR REPLACE FUNCTION holdfast_audit_insert() RETURNS trigger LANGUAGE plpgsql AS $$
BEGIN
  INSERT INTO holdfast_events (job_id, seq, at, event, from_state, to_state, attempt, detail)
  SELECT n.id, 1, n.updated_at, 'enqueued', NULL, 'pending', 0, n.transition_detail FROM new_rows n
  WHERE CASE WHEN ({_WELL_MADE}) IS NOT TRUE THEN holdfast_refuse_new()
        WHEN {_WITHIN_BOUNDS} THEN true ELSE holdfast_refuse_values(n.id) END;
  RETURN NULL;
END $$""",
    """
CREATE OR REPLACE FUNCTION holdfast_refuse_move(job_id uuid, from_state text, to_state text, event text)
RETURNS boolean LANGUAGE plpgsql AS $$
BEGIN
  RAISE EXCEPTION USING ERRCODE = 'check_violation', MESSAGE = 'holdfast: job ' || job_id || ': ' || from_state
    || ' -> ' || to_state || ' (' || event || ') is not in the lifecycle';
END $$""",
    # A session keeps the plan of its first call. After a batch of one that would be a nested loop, quadratic in all
    # batches to come; and a claim that looks under `look.STEADY` has forbidden the rest.
    f"""
CREATE OR REPLACE FUNCTION holdfast_audit_update() RETURNS trigger LANGUAGE plpgsql
SET enable_hashjoin = on SET enable_nestloop = off AS $$
BEGIN
  INSERT INTO holdfast_events (job_id, seq, at, event, from_state, to_state, attempt, worker, lease, detail)
  SELECT n.id, n.seq, n.updated_at, n.transition, o.state, n.state, n.attempt,
         coalesce(n.lease_owner, o.lease_owner), coalesce(n.lease_token, o.lease_token), n.transition_detail
  FROM new_rows n JOIN old_rows o ON o.id = n.id
  WHERE CASE WHEN ({_LEGAL_PAIR}) IS NOT TRUE THEN holdfast_refuse_move(n.id, o.state, n.state, n.transition)
        WHEN {_WITHIN_BOUNDS} THEN o.seq <> n.seq ELSE holdfast_refuse_values(n.id) END;
  RETURN NULL;
END $$""",
    """
CREATE OR REPLACE FUNCTION holdfast_audit_delete() RETURNS trigger LANGUAGE plpgsql AS $$
BEGIN
  INSERT INTO holdfast_events (job_id, seq, at, event, from_state, to_state, attempt, detail)
  SELECT id, seq + 1, greatest(holdfast_now(), updated_at), 'pruned', state, NULL, attempt,
         json_build_object('task', task, 'queue', queue) FROM old_rows;
  RETURN NULL;
END $$""",
    """
CREATE OR REPLACE FUNCTION holdfast_note_retired(last_event timestamptz, job_count bigint, event_count bigint)
RETURNS void LANGUAGE plpgsql AS $$
DECLARE
  through constant text := to_char(last_event AT TIME ZONE 'UTC', 'YYYY-MM-DD"T"HH24:MI:SS.US"Z"');
BEGIN
  IF event_count > 0 THEN
    INSERT INTO holdfast_meta AS m (key, value) VALUES ('histories_retired',
      json_build_object('through', through, 'jobs', job_count, 'events', event_count)::text)
    ON CONFLICT (key) DO UPDATE SET value = json_build_object(
      'through', greatest(m.value::json ->> 'through', through),
      'jobs', (m.value::json ->> 'jobs')::bigint + job_count,
      'events', (m.value::json ->> 'events')::bigint + event_count)::text;
  END IF;
END $$""",
    """
CREATE OR REPLACE FUNCTION holdfast_retire_histories() RETURNS trigger LANGUAGE plpgsql AS $$
DECLARE
  last_event timestamptz;
  job_count bigint;
  event_count bigint;
BEGIN
  IF EXISTS (SELECT FROM new_rows r JOIN holdfast_jobs j ON j.id = r.job_id) THEN
    RAISE EXCEPTION USING ERRCODE = 'check_violation',
      MESSAGE = 'holdfast: a history is retired only after its job was pruned';
  END IF;
  WITH gone AS (DELETE FROM holdfast_events e USING new_rows r WHERE e.job_id = r.job_id RETURNING e.job_id, e.at)
  SELECT max(at), count(DISTINCT job_id), count(*)
  INTO last_event, job_count, event_count FROM gone;
  DELETE FROM holdfast_retired_histories d USING new_rows r WHERE d.job_id = r.job_id;
  PERFORM holdfast_note_retired(last_event, job_count, event_count);
  RETURN NULL;
END $$""",
)

# name, table, timing, level and condition, function
_TRIGGERS = (
    (
        "holdfast_10_manual",
        "holdfast_jobs",
        "BEFORE UPDATE",
        f"FOR EACH ROW WHEN ({rules.MANUAL_UPDATE})",
        "holdfast_complete_manual_update",
    ),
    # What is not in the lifecycle is refused by the audit, which looks at old and new anyway; but by their id. So is
    # what is not inserted as a new job should be.
    (
        "holdfast_20_guard",
        "holdfast_jobs",
        "BEFORE UPDATE OF id",
        "FOR EACH ROW WHEN (NEW.id <> OLD.id)",
        "holdfast_refuse_job",
    ),
    # Only when the payload is among the columns set: a heartbeat must not pay for reading a long one.
    (
        "holdfast_20_guard_payload",
        "holdfast_jobs",
        "BEFORE UPDATE OF payload",
        "FOR EACH ROW WHEN (json_typeof(NEW.payload) <> 'object')",
        "holdfast_refuse_payload",
    ),
    (
        "holdfast_20_guard_delete",
        "holdfast_jobs",
        "BEFORE DELETE",
        f"FOR EACH ROW WHEN (NOT ({rules.IS_TERMINAL}))",
        "holdfast_refuse_job",
    ),
    (
        "holdfast_20_guard_truncate",
        "holdfast_jobs",
        "BEFORE TRUNCATE",
        "FOR EACH STATEMENT",
        "holdfast_refuse_statement",
    ),
    (
        "holdfast_30_audit_insert",
        "holdfast_jobs",
        "AFTER INSERT",
        "REFERENCING NEW TABLE AS new_rows FOR EACH STATEMENT",
        "holdfast_audit_insert",
    ),
    (
        "holdfast_30_audit_update",
        "holdfast_jobs",
        "AFTER UPDATE",
        "REFERENCING OLD TABLE AS old_rows NEW TABLE AS new_rows FOR EACH STATEMENT",
        "holdfast_audit_update",
    ),
    (
        "holdfast_30_audit_delete",
        "holdfast_jobs",
        "AFTER DELETE",
        "REFERENCING OLD TABLE AS old_rows FOR EACH STATEMENT",
        "holdfast_audit_delete",
    ),
    # Depth 0 is a statement that somebody typed; the audit triggers above insert at depth 1.
    (
        "holdfast_insert",
        "holdfast_events",
        "BEFORE INSERT",
        "FOR EACH STATEMENT WHEN (pg_trigger_depth() = 0)",
        "holdfast_refuse_statement",
    ),
    ("holdfast_update", "holdfast_events", "BEFORE UPDATE", "FOR EACH STATEMENT", "holdfast_refuse_statement"),
    (
        "holdfast_delete",
        "holdfast_events",
        "BEFORE DELETE",
        "FOR EACH STATEMENT WHEN (pg_trigger_depth() = 0)",
        "holdfast_refuse_statement",
    ),
    ("holdfast_truncate", "holdfast_events", "BEFORE TRUNCATE", "FOR EACH STATEMENT", "holdfast_refuse_statement"),
    (
        "holdfast_retire",
        "holdfast_retired_histories",
        "AFTER INSERT",
        "REFERENCING NEW TABLE AS new_rows FOR EACH STATEMENT",
        "holdfast_retire_histories",
    ),
)

# Of earlier versions.
_FORMER_TRIGGERS = (("holdfast_20_guard_insert", "holdfast_jobs"),)

ATTEMPTS_VIEW = """
CREATE OR REPLACE VIEW holdfast_attempts AS
SELECT started.job_id, started.attempt, started.worker, started.at AS started_at, ended.at AS finished_at,
       ended.event AS outcome, ended.detail -> 'error' AS error,
       (ended.detail ->> 'exit_code')::bigint AS exit_code, (ended.detail ->> 'signal')::bigint AS signal,
       coalesce((ended.detail ->> 'duration_ms')::bigint,
                (extract(epoch FROM ended.at - started.at) * 1000)::bigint) AS duration_ms,
       (ended.detail ->> 'cpu_ms')::bigint AS cpu_ms, (ended.detail ->> 'max_rss_kb')::bigint AS max_rss_kb
FROM holdfast_events started
LEFT JOIN holdfast_events ended
  ON ended.job_id = started.job_id AND ended.attempt = started.attempt AND ended.seq > started.seq
 AND ended.from_state = 'running' AND ended.to_state <> 'running'
WHERE started.event = 'claimed'"""


def statements() -> list[str]:
    functions = (*_FUNCTIONS, *postgres_webhooks.FUNCTIONS, *postgres_partitions.FUNCTIONS, *routines.FUNCTIONS)
    ddl = [*FOUNDATION, *(function.strip() for function in functions)]
    ddl += [f"DROP TRIGGER IF EXISTS {name} ON {table}" for name, table in _FORMER_TRIGGERS]
    for name, table, timing, level, function in (*_TRIGGERS, *postgres_webhooks.TRIGGERS):
        ddl.append(f"DROP TRIGGER IF EXISTS {name} ON {table}")
        ddl.append(f"CREATE TRIGGER {name} {timing} ON {table} {level} EXECUTE FUNCTION {function}()")
    ddl += [statement.strip() for statement in postgres_partitions.guarding(_TRIGGERS)]
    # Replaced in place: grants on the view, and other views over it, stay.
    ddl.append(ATTEMPTS_VIEW.strip())
    return ddl
