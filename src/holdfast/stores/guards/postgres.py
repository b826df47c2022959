"""Guards on Postgres.

Measured, on Postgres 15: audit and guard are one statement-level trigger with a single join of the transition tables.
As a row trigger's WHEN clause the guard was read from its text and prepared anew in every statement, which took a
quarter of a millisecond; an EXISTS over a second join of the transition tables is quadratic in the batch. The
completion of hand-typed updates fires only when the state changed and `seq` did not. BEFORE ROW triggers run in name
order, and each sees what the one before it made of NEW.

Functions that write the audit log run with the rights of its owner (docs/decisions/0021). The log accepts rows only
from a role with the owner's rights: a trigger of a worker's own, on a temporary table for example, has the worker's.

A history that is retired is counted in `holdfast_meta`, with the time of its last event; `verify` reads that.
"""

from __future__ import annotations

import re

from holdfast.stores import routines, schema
from holdfast.stores.guards import postgres_partitions, postgres_webhooks, rules
from holdfast.stores.postgres_names import (
    ENTER_SCHEMA,
    FIXED_PATH,
    OWNERSHIP,
    SCHEMA,
    WITH_OWNERS_RIGHTS,
    in_schema,
    is_called_from,
)
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
# Only of a new row: an older one with such a time can still be claimed and cancelled.
_BEGINS_IN_CALENDAR = " AND ".join(
    f"n.{column} BETWEEN '0001-01-01T00:00:00.000000Z' AND '9999-12-31T23:59:59.999999Z'"
    for column in ("created_at", "updated_at")
)
_NEW_WITHIN_BOUNDS = f"{_WITHIN_BOUNDS} AND {_BEGINS_IN_CALENDAR}"


def _refusals() -> str:
    rules_of_new = {**_RULES, "times": f"{_RULES['times']} AND {_BEGINS_IN_CALENDAR}"}
    return "\n".join(
        f"""  IF ({rule}) IS FALSE THEN
    RAISE EXCEPTION USING ERRCODE = 'check_violation', TABLE = 'holdfast_jobs', CONSTRAINT = 'holdfast_jobs_{name}',
      MESSAGE = 'holdfast: job ' || job_id || ' breaks holdfast_jobs_{name}: {stated.replace("'", "''")}';
  END IF;"""
        for (name, rule), (_, stated) in zip(rules_of_new.items(), schema.JOB_RULES, strict=True)
    )


_FUNCTIONS = (
    f"""
CREATE OR REPLACE FUNCTION holdfast_refuse_job() RETURNS trigger LANGUAGE plpgsql {FIXED_PATH} AS $$
BEGIN
  IF TG_OP = 'UPDATE' THEN
    RAISE EXCEPTION USING ERRCODE = 'check_violation', MESSAGE = 'holdfast: job ' || OLD.id || ': ' || OLD.state
      || ' -> ' || NEW.state || ' (' || NEW.transition || ') is not in the lifecycle';
  ELSE
    RAISE EXCEPTION USING ERRCODE = 'check_violation', MESSAGE = 'holdfast: job ' || OLD.id || ' is ' || OLD.state
      || '; only a finished job is deleted';
  END IF;
END $$""",
    f"""
CREATE OR REPLACE FUNCTION holdfast_refuse_payload() RETURNS trigger LANGUAGE plpgsql {FIXED_PATH} AS $$
BEGIN
  RAISE EXCEPTION USING ERRCODE = 'check_violation', MESSAGE = 'holdfast: job ' || OLD.id
    || ': a payload is a JSON object';
END $$""",
    f"""
CREATE OR REPLACE FUNCTION holdfast_refuse_statement() RETURNS trigger LANGUAGE plpgsql {FIXED_PATH} AS $$
BEGIN
  RAISE EXCEPTION USING ERRCODE = 'check_violation', MESSAGE = 'holdfast: ' || TG_OP || ' of ' || TG_TABLE_NAME
    || ' is refused: its rows are kept by the engine alone';
END $$""",
    # Depth 1 is a statement typed by hand, also by the owner; the audit functions write at depth 2 and as the owner.
    # A grant option on everything is the owner's alone: no GRANT ALL gives it. Not a WHEN clause, which is read from
    # text in each statement (7 microseconds), nor a fixed path (3): the names that decide are qualified.
    """
CREATE OR REPLACE FUNCTION holdfast_guard_log() RETURNS trigger LANGUAGE plpgsql AS $$
BEGIN
  IF pg_catalog.pg_trigger_depth() OPERATOR(pg_catalog.<) 2
    OR NOT pg_catalog.has_table_privilege(TG_RELID, 'TRUNCATE WITH GRANT OPTION'::pg_catalog.text)
  THEN
    RAISE EXCEPTION USING ERRCODE = 'check_violation', MESSAGE = 'holdfast: ' || TG_OP || ' of ' || TG_TABLE_NAME
      || ' is refused: its rows are kept by the engine alone';
  END IF;
  RETURN NULL;
END $$""",
    f"""
CREATE OR REPLACE FUNCTION holdfast_complete_manual_update() RETURNS trigger LANGUAGE plpgsql {FIXED_PATH} AS $$
BEGIN
  NEW.seq := OLD.seq + 1;
  NEW.transition := {rules.MANUAL_EVENT};
  IF NEW.transition = 'none' THEN
    PERFORM {SCHEMA}.holdfast_refuse_move(OLD.id, OLD.state, NEW.state, 'none');
  END IF;
  NEW.transition_detail := json_build_object('manual', true, 'role', session_user);
  NEW.updated_at := greatest({SCHEMA}.holdfast_now(), OLD.updated_at);
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
    f"""
CREATE OR REPLACE FUNCTION holdfast_refuse_new() RETURNS boolean LANGUAGE plpgsql {FIXED_PATH} AS $$
BEGIN
  RAISE EXCEPTION USING ERRCODE = 'check_violation',
    MESSAGE = 'holdfast: a job is inserted as pending, with a JSON object as payload (and as webhook, with url and on)';
END $$""",
    f"""
CREATE OR REPLACE FUNCTION holdfast_refuse_values(job_id uuid) RETURNS boolean LANGUAGE plpgsql {FIXED_PATH} AS $$
DECLARE
  n {SCHEMA}.holdfast_jobs;
BEGIN
  SELECT * INTO n FROM {SCHEMA}.holdfast_jobs WHERE id = job_id;
{_refusals()}
  RAISE EXCEPTION USING ERRCODE = 'check_violation', MESSAGE = 'holdfast: job ' || job_id || ' is out of bounds';
END $$""",
    f"""
CREATE OR REPLACE FUNCTION holdfast_audit_insert() RETURNS trigger LANGUAGE plpgsql {WITH_OWNERS_RIGHTS} AS $$
BEGIN
{is_called_from("holdfast_jobs")}
  INSERT INTO {SCHEMA}.holdfast_events (job_id, seq, at, event, from_state, to_state, attempt, detail)
  SELECT n.id, 1, n.updated_at, 'enqueued', NULL, 'pending', 0, n.transition_detail FROM new_rows n
  WHERE CASE WHEN ({_WELL_MADE}) IS NOT TRUE THEN {SCHEMA}.holdfast_refuse_new()
        WHEN {_NEW_WITHIN_BOUNDS} THEN true ELSE {SCHEMA}.holdfast_refuse_values(n.id) END;
  RETURN NULL;
END $$""",
    f"""
CREATE OR REPLACE FUNCTION holdfast_refuse_move(job_id uuid, from_state text, to_state text, event text)
RETURNS boolean LANGUAGE plpgsql {FIXED_PATH} AS $$
BEGIN
  RAISE EXCEPTION USING ERRCODE = 'check_violation', MESSAGE = 'holdfast: job ' || job_id || ': ' || from_state
    || ' -> ' || to_state || ' (' || event || ') is not in the lifecycle';
END $$""",
    # A session keeps the plan of its first call. After a batch of one that would be a nested loop, quadratic in all
    # batches to come; and a claim that looks under `look.STEADY` has forbidden the rest.
    f"""
CREATE OR REPLACE FUNCTION holdfast_audit_update() RETURNS trigger LANGUAGE plpgsql {WITH_OWNERS_RIGHTS}
SET enable_hashjoin = on SET enable_nestloop = off AS $$
BEGIN
{is_called_from("holdfast_jobs")}
  INSERT INTO {SCHEMA}.holdfast_events (job_id, seq, at, event, from_state, to_state, attempt, worker, lease, detail)
  SELECT n.id, n.seq, n.updated_at, n.transition, o.state, n.state, n.attempt,
         coalesce(n.lease_owner, o.lease_owner), coalesce(n.lease_token, o.lease_token), n.transition_detail
  FROM new_rows n JOIN old_rows o ON o.id = n.id
  WHERE CASE WHEN ({_LEGAL_PAIR}) IS NOT TRUE THEN {SCHEMA}.holdfast_refuse_move(n.id, o.state, n.state, n.transition)
        WHEN {_WITHIN_BOUNDS} THEN o.seq <> n.seq ELSE {SCHEMA}.holdfast_refuse_values(n.id) END;
  RETURN NULL;
END $$""",
    f"""
CREATE OR REPLACE FUNCTION holdfast_audit_delete() RETURNS trigger LANGUAGE plpgsql {WITH_OWNERS_RIGHTS} AS $$
BEGIN
{is_called_from("holdfast_jobs")}
  INSERT INTO {SCHEMA}.holdfast_events (job_id, seq, at, event, from_state, to_state, attempt, detail)
  SELECT id, seq + 1, greatest({SCHEMA}.holdfast_now(), updated_at), 'pruned', state, NULL, attempt,
         json_build_object('task', task, 'queue', queue) FROM old_rows;
  RETURN NULL;
END $$""",
    f"""
CREATE OR REPLACE FUNCTION holdfast_note_retired(last_event timestamptz, job_count bigint, event_count bigint)
RETURNS void LANGUAGE plpgsql {FIXED_PATH} AS $$
DECLARE
  through constant text := to_char(last_event AT TIME ZONE 'UTC', 'YYYY-MM-DD"T"HH24:MI:SS.US"Z"');
BEGIN
  IF event_count > 0 THEN
    INSERT INTO {SCHEMA}.holdfast_meta AS m (key, value) VALUES ('histories_retired',
      json_build_object('through', through, 'jobs', job_count, 'events', event_count)::text)
    ON CONFLICT (key) DO UPDATE SET value = json_build_object(
      'through', greatest(m.value::json ->> 'through', through),
      'jobs', (m.value::json ->> 'jobs')::bigint + job_count,
      'events', (m.value::json ->> 'events')::bigint + event_count)::text;
  END IF;
END $$""",
    f"""
CREATE OR REPLACE FUNCTION holdfast_retire_histories() RETURNS trigger LANGUAGE plpgsql {WITH_OWNERS_RIGHTS} AS $$
DECLARE
  last_event timestamptz;
  job_count bigint;
  event_count bigint;
  pruned_count bigint;
BEGIN
{is_called_from("holdfast_retired_histories")}
  IF EXISTS (SELECT FROM new_rows r JOIN {SCHEMA}.holdfast_jobs j ON j.id = r.job_id) THEN
    RAISE EXCEPTION USING ERRCODE = 'check_violation',
      MESSAGE = 'holdfast: a history is retired only after its job was pruned';
  END IF;
  -- The row of a retired history stays: its id is never given to another job.
  DELETE FROM {SCHEMA}.holdfast_retired_histories d USING new_rows r
  WHERE d.job_id = r.job_id AND NOT EXISTS (SELECT FROM {SCHEMA}.holdfast_events e WHERE e.job_id = r.job_id);
  WITH gone AS (
    DELETE FROM {SCHEMA}.holdfast_events e USING new_rows r WHERE e.job_id = r.job_id
    RETURNING e.job_id, e.at, e.event)
  SELECT max(at), count(DISTINCT job_id), count(*), count(*) FILTER (WHERE event = 'pruned')
  INTO last_event, job_count, event_count, pruned_count FROM gone;
  -- A history without its end is evidence: the job was removed with the guards off.
  IF pruned_count <> job_count THEN
    RAISE EXCEPTION USING ERRCODE = 'check_violation',
      MESSAGE = 'holdfast: a history is retired only after its job was pruned; holdfast verify names those without end';
  END IF;
  PERFORM {SCHEMA}.holdfast_note_retired(last_event, job_count, event_count);
  RETURN NULL;
END $$""",
    # Also for the owner: pg_trigger_depth() is above 0 in every trigger, so the rows themselves are checked. By index:
    # a hash join would read whole tables for a batch of ten.
    f"""
CREATE OR REPLACE FUNCTION holdfast_check_deleted() RETURNS trigger LANGUAGE plpgsql {WITH_OWNERS_RIGHTS}
SET enable_hashjoin = off SET enable_mergejoin = off SET enable_seqscan = off AS $$
BEGIN
  IF EXISTS (SELECT FROM old_rows GROUP BY job_id HAVING NOT bool_or(event = 'pruned'))
    OR EXISTS (SELECT FROM old_rows o LEFT JOIN {SCHEMA}.holdfast_retired_histories r ON r.job_id = o.job_id
               WHERE r.job_id IS NULL)
    OR EXISTS (SELECT FROM old_rows o JOIN {SCHEMA}.holdfast_jobs j ON j.id = o.job_id)
    OR EXISTS (SELECT FROM old_rows o JOIN {SCHEMA}.holdfast_events e ON e.job_id = o.job_id)
  THEN
    RAISE EXCEPTION USING ERRCODE = 'check_violation', MESSAGE = 'holdfast: DELETE of ' || TG_TABLE_NAME
      || ' is refused: its rows are kept by the engine alone; only retention removes them, history by history';
  END IF;
  RETURN NULL;
END $$""",
    # The row trigger of a table with a handful of rows: nothing on the way of a job writes to it.
    f"""
CREATE OR REPLACE FUNCTION holdfast_guard_meta() RETURNS trigger LANGUAGE plpgsql {FIXED_PATH} AS $$
DECLARE
  is_owner constant boolean := has_table_privilege(TG_RELID, 'TRUNCATE WITH GRANT OPTION');
BEGIN
  IF TG_OP <> 'INSERT' AND OLD.key IN ('histories_retired', 'retired_ids_through') AND (
    TG_OP = 'DELETE' OR NEW.key <> OLD.key OR CASE OLD.key
      WHEN 'retired_ids_through' THEN NEW.value < OLD.value
      ELSE NEW.value::json ->> 'through' < OLD.value::json ->> 'through'
        OR (NEW.value::json ->> 'jobs')::bigint < (OLD.value::json ->> 'jobs')::bigint
        OR (NEW.value::json ->> 'events')::bigint < (OLD.value::json ->> 'events')::bigint END IS NOT FALSE)
  THEN
    RAISE EXCEPTION USING ERRCODE = 'check_violation',
      MESSAGE = 'holdfast: ' || OLD.key || ' of ' || TG_TABLE_NAME || ' only rises: it says what retention has removed';
  END IF;
  IF is_owner THEN
    RETURN CASE TG_OP WHEN 'DELETE' THEN OLD ELSE NEW END;
  ELSIF TG_OP = 'DELETE' OR NEW.key NOT IN ('retired_ids_through', 'store_id')
    OR (TG_OP = 'UPDATE' AND NEW.key <> OLD.key)
  THEN
    RAISE EXCEPTION USING ERRCODE = 'insufficient_privilege', MESSAGE = 'holdfast: ' || TG_OP || ' of '
      || CASE TG_OP WHEN 'DELETE' THEN OLD.key ELSE NEW.key END || ' in ' || TG_TABLE_NAME
      || ' is refused: the engine writes it with the rights of the owner';
  ELSIF NEW.key = 'retired_ids_through' AND (NEW.value !~ '^[0-9a-f]{{8}}(-[0-9a-f]{{4}}){{3}}-[0-9a-f]{{12}}$'
    OR NEW.value >= {SCHEMA}.holdfast_first_id({SCHEMA}.holdfast_now() + interval '1 day')::text)
  THEN
    RAISE EXCEPTION USING ERRCODE = 'check_violation', MESSAGE = 'holdfast: retired_ids_through of ' || TG_TABLE_NAME
      || ' must be a UUID of at most one day ahead: a later one would refuse new ids';
  END IF;
  RETURN NEW;
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
    (
        "holdfast_insert",
        "holdfast_events",
        "BEFORE INSERT",
        "FOR EACH STATEMENT",
        "holdfast_guard_log",
    ),
    ("holdfast_update", "holdfast_events", "BEFORE UPDATE", "FOR EACH STATEMENT", "holdfast_refuse_statement"),
    (
        "holdfast_delete",
        "holdfast_events",
        "BEFORE DELETE",
        "FOR EACH STATEMENT",
        "holdfast_guard_log",
    ),
    (
        "holdfast_deleted",
        "holdfast_events",
        "AFTER DELETE",
        "REFERENCING OLD TABLE AS old_rows FOR EACH STATEMENT",
        "holdfast_check_deleted",
    ),
    ("holdfast_truncate", "holdfast_events", "BEFORE TRUNCATE", "FOR EACH STATEMENT", "holdfast_refuse_statement"),
    (
        "holdfast_update",
        "holdfast_retired_histories",
        "BEFORE UPDATE",
        "FOR EACH STATEMENT",
        "holdfast_refuse_statement",
    ),
    (
        "holdfast_retire",
        "holdfast_retired_histories",
        "AFTER INSERT",
        "REFERENCING NEW TABLE AS new_rows FOR EACH STATEMENT",
        "holdfast_retire_histories",
    ),
    (
        "holdfast_guard",
        "holdfast_meta",
        "BEFORE INSERT OR UPDATE OR DELETE",
        "FOR EACH ROW",
        "holdfast_guard_meta",
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
    ddl = [ENTER_SCHEMA, *FOUNDATION, *(in_schema(function.strip()) for function in functions)]
    ddl += [f"DROP TRIGGER IF EXISTS {name} ON {table}" for name, table in _FORMER_TRIGGERS]
    for name, table, timing, level, function in (*_TRIGGERS, *postgres_webhooks.TRIGGERS):
        ddl.append(f"DROP TRIGGER IF EXISTS {name} ON {table}")
        ddl.append(f"CREATE TRIGGER {name} {timing} ON {table} {level} EXECUTE FUNCTION {function}()")
    ddl += [in_schema(postgres_partitions.guarding(_TRIGGERS).strip()), "SELECT holdfast_guard_partitions()"]
    # Replaced in place: grants on the view, and other views over it, stay.
    ddl.append(ATTEMPTS_VIEW.strip())
    ddl.append(OWNERSHIP)
    return ddl
