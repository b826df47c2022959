CREATE OR REPLACE FUNCTION holdfast_now() RETURNS timestamptz LANGUAGE sql VOLATILE AS 'SELECT clock_timestamp()'
-- next
CREATE OR REPLACE FUNCTION holdfast_uuid7() RETURNS uuid LANGUAGE sql VOLATILE AS $$SELECT encode(set_bit(set_bit(overlay(uuid_send(gen_random_uuid()) placing substring(int8send((extract(epoch from clock_timestamp()) * 1000)::bigint) from 3) from 1 for 6), 52, 1), 53, 1), 'hex')::uuid$$
-- next
CREATE OR REPLACE FUNCTION holdfast_refuse_job() RETURNS trigger LANGUAGE plpgsql AS $$
BEGIN
  IF TG_OP = 'UPDATE' THEN
    RAISE EXCEPTION USING ERRCODE = 'check_violation', MESSAGE = 'holdfast: job ' || OLD.id || ': ' || OLD.state
      || ' -> ' || NEW.state || ' (' || NEW.transition || ') is not in the lifecycle';
  ELSIF TG_OP = 'DELETE' THEN
    RAISE EXCEPTION USING ERRCODE = 'check_violation', MESSAGE = 'holdfast: job ' || OLD.id || ' is ' || OLD.state
      || '; only a finished job is deleted';
  END IF;
  RAISE EXCEPTION USING ERRCODE = 'check_violation',
    MESSAGE = 'holdfast: a job is inserted as pending, with a JSON object as payload';
END $$
-- next
CREATE OR REPLACE FUNCTION holdfast_refuse_payload() RETURNS trigger LANGUAGE plpgsql AS $$
BEGIN
  RAISE EXCEPTION USING ERRCODE = 'check_violation', MESSAGE = 'holdfast: job ' || OLD.id
    || ': a payload is a JSON object';
END $$
-- next
CREATE OR REPLACE FUNCTION holdfast_refuse_statement() RETURNS trigger LANGUAGE plpgsql AS $$
BEGIN
  RAISE EXCEPTION USING ERRCODE = 'check_violation', MESSAGE = 'holdfast: ' || TG_OP || ' of ' || TG_TABLE_NAME
    || ' is refused: its rows are kept by the engine alone';
END $$
-- next
CREATE OR REPLACE FUNCTION holdfast_complete_manual_update() RETURNS trigger LANGUAGE plpgsql AS $$
BEGIN
  NEW.seq := OLD.seq + 1;
  NEW.transition := CASE OLD.state || '>' || NEW.state
    WHEN 'pending>running' THEN 'claimed'
    WHEN 'retryable>running' THEN 'claimed'
    WHEN 'pending>cancelled' THEN 'cancelled'
    WHEN 'retryable>cancelled' THEN 'cancelled'
    WHEN 'running>succeeded' THEN 'succeeded'
    WHEN 'running>retryable' THEN 'retry_scheduled'
    WHEN 'running>failed' THEN 'failed'
    WHEN 'running>pending' THEN 'released'
    WHEN 'running>cancelled' THEN 'cancelled'
    WHEN 'failed>pending' THEN 'requeued'
    WHEN 'cancelled>pending' THEN 'requeued'
    WHEN 'running>running' THEN 'cancel_requested'
    ELSE 'none' END;
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
  IF OLD.state = 'running' AND NEW.state IN ('retryable', 'failed') AND NEW.failures = OLD.failures AND NEW.crashes = OLD.crashes THEN
    NEW.failures := OLD.failures + 1;
  END IF;
  IF OLD.state IN ('succeeded', 'failed', 'cancelled') AND NEW.state = 'pending' THEN
    NEW.failures := 0; NEW.crashes := 0; NEW.cancel_requested_at := NULL; NEW.finished_at := NULL;
  END IF;
  IF NEW.state IN ('succeeded', 'failed', 'cancelled') THEN
    NEW.finished_at := NEW.updated_at;
  END IF;
  RETURN NEW;
END $$
-- next
CREATE OR REPLACE FUNCTION holdfast_audit_insert() RETURNS trigger LANGUAGE plpgsql AS $$
BEGIN
  INSERT INTO holdfast_events (job_id, seq, at, event, from_state, to_state, attempt, detail)
  SELECT id, 1, updated_at, 'enqueued', NULL, 'pending', 0, transition_detail FROM new_rows;
  RETURN NULL;
END $$
-- next
CREATE OR REPLACE FUNCTION holdfast_audit_update() RETURNS trigger LANGUAGE plpgsql AS $$
BEGIN
  INSERT INTO holdfast_events (job_id, seq, at, event, from_state, to_state, attempt, worker, lease, detail)
  SELECT n.id, n.seq, n.updated_at, n.transition, o.state, n.state, n.attempt,
         coalesce(n.lease_owner, o.lease_owner), coalesce(n.lease_token, o.lease_token), n.transition_detail
  FROM new_rows n JOIN old_rows o ON o.id = n.id AND o.seq <> n.seq;
  RETURN NULL;
END $$
-- next
CREATE OR REPLACE FUNCTION holdfast_audit_delete() RETURNS trigger LANGUAGE plpgsql AS $$
BEGIN
  INSERT INTO holdfast_events (job_id, seq, at, event, from_state, to_state, attempt, detail)
  SELECT id, seq + 1, greatest(holdfast_now(), updated_at), 'pruned', state, NULL, attempt,
         json_build_object('task', task, 'queue', queue) FROM old_rows;
  RETURN NULL;
END $$
-- next
CREATE OR REPLACE FUNCTION holdfast_retire_histories() RETURNS trigger LANGUAGE plpgsql AS $$
DECLARE
  last_event text;
  job_count bigint;
  event_count bigint;
BEGIN
  IF EXISTS (SELECT FROM new_rows r JOIN holdfast_jobs j ON j.id = r.job_id) THEN
    RAISE EXCEPTION USING ERRCODE = 'check_violation',
      MESSAGE = 'holdfast: a history is retired only after its job was pruned';
  END IF;
  WITH gone AS (DELETE FROM holdfast_events e USING new_rows r WHERE e.job_id = r.job_id RETURNING e.job_id, e.at)
  SELECT to_char(max(at) AT TIME ZONE 'UTC', 'YYYY-MM-DD"T"HH24:MI:SS.US"Z"'), count(DISTINCT job_id), count(*)
  INTO last_event, job_count, event_count FROM gone;
  DELETE FROM holdfast_retired_histories d USING new_rows r WHERE d.job_id = r.job_id;
  IF event_count > 0 THEN
    INSERT INTO holdfast_meta AS m (key, value) VALUES ('histories_retired',
      json_build_object('through', last_event, 'jobs', job_count, 'events', event_count)::text)
    ON CONFLICT (key) DO UPDATE SET value = json_build_object(
      'through', greatest(m.value::json ->> 'through', last_event),
      'jobs', (m.value::json ->> 'jobs')::bigint + job_count,
      'events', (m.value::json ->> 'events')::bigint + event_count)::text;
  END IF;
  RETURN NULL;
END $$
-- next
DROP TRIGGER IF EXISTS holdfast_10_manual ON holdfast_jobs
-- next
CREATE TRIGGER holdfast_10_manual BEFORE UPDATE ON holdfast_jobs FOR EACH ROW WHEN (NEW.seq = OLD.seq AND (NEW.state <> OLD.state OR (NEW.state = 'running' AND OLD.cancel_requested_at IS NULL AND NEW.cancel_requested_at IS NOT NULL))) EXECUTE FUNCTION holdfast_complete_manual_update()
-- next
DROP TRIGGER IF EXISTS holdfast_20_guard ON holdfast_jobs
-- next
CREATE TRIGGER holdfast_20_guard BEFORE UPDATE ON holdfast_jobs FOR EACH ROW WHEN ((NEW.id = OLD.id AND ((NEW.seq = OLD.seq AND NEW.state = OLD.state AND NEW.transition = OLD.transition AND NEW.attempt = OLD.attempt AND NEW.failures = OLD.failures AND NEW.crashes = OLD.crashes AND NEW.updated_at = OLD.updated_at AND coalesce(NEW.lease_token, '') = coalesce(OLD.lease_token, '') AND coalesce(NEW.lease_owner, '') = coalesce(OLD.lease_owner, '') AND (NEW.finished_at = OLD.finished_at OR (NEW.finished_at IS NULL AND OLD.finished_at IS NULL)) AND (NEW.cancel_requested_at IS NULL) = (OLD.cancel_requested_at IS NULL)) OR (NEW.seq = OLD.seq + 1 AND NEW.updated_at >= OLD.updated_at AND CASE NEW.transition
    WHEN 'replaced' THEN (OLD.state IN ('pending') AND NEW.state = 'pending' AND NEW.attempt = OLD.attempt AND NEW.failures = OLD.failures AND NEW.crashes = OLD.crashes AND coalesce(NEW.lease_token, '') = coalesce(OLD.lease_token, '') AND coalesce(NEW.lease_owner, '') = coalesce(OLD.lease_owner, ''))
    WHEN 'claimed' THEN (OLD.state IN ('pending', 'retryable') AND NEW.state = 'running' AND NEW.attempt = OLD.attempt + 1 AND NEW.failures = OLD.failures AND NEW.crashes = OLD.crashes)
    WHEN 'succeeded' THEN (OLD.state IN ('running') AND NEW.state = 'succeeded' AND NEW.attempt = OLD.attempt AND NEW.failures = OLD.failures AND NEW.crashes = OLD.crashes)
    WHEN 'retry_scheduled' THEN (OLD.state IN ('running') AND NEW.state = 'retryable' AND NEW.attempt = OLD.attempt AND NEW.failures = OLD.failures + 1 AND NEW.crashes = OLD.crashes)
    WHEN 'crashed' THEN (OLD.state IN ('running') AND NEW.state = 'retryable' AND NEW.attempt = OLD.attempt AND NEW.failures = OLD.failures AND NEW.crashes = OLD.crashes + 1)
    WHEN 'lease_lost' THEN (OLD.state IN ('running') AND NEW.state = 'pending' AND NEW.attempt = OLD.attempt AND NEW.failures = OLD.failures AND NEW.crashes = OLD.crashes + 1)
    WHEN 'failed' THEN (OLD.state IN ('running') AND NEW.state = 'failed' AND NEW.attempt = OLD.attempt AND NEW.failures + NEW.crashes = OLD.failures + OLD.crashes + 1 AND NEW.failures >= OLD.failures AND NEW.crashes >= OLD.crashes)
    WHEN 'released' THEN (OLD.state IN ('running') AND NEW.state = 'pending' AND NEW.attempt = OLD.attempt AND NEW.failures = OLD.failures AND NEW.crashes = OLD.crashes)
    WHEN 'snoozed' THEN (OLD.state IN ('running') AND NEW.state = 'pending' AND NEW.attempt = OLD.attempt AND NEW.failures = OLD.failures AND NEW.crashes = OLD.crashes)
    WHEN 'cancel_requested' THEN (OLD.state IN ('running') AND NEW.state = 'running' AND NEW.attempt = OLD.attempt AND NEW.failures = OLD.failures AND NEW.crashes = OLD.crashes AND coalesce(NEW.lease_token, '') = coalesce(OLD.lease_token, '') AND coalesce(NEW.lease_owner, '') = coalesce(OLD.lease_owner, ''))
    WHEN 'cancelled' THEN (OLD.state IN ('pending', 'retryable', 'running') AND NEW.state = 'cancelled' AND NEW.attempt = OLD.attempt AND NEW.failures = OLD.failures AND NEW.crashes = OLD.crashes)
    WHEN 'requeued' THEN (OLD.state IN ('failed', 'cancelled') AND NEW.state = 'pending' AND NEW.attempt = OLD.attempt AND NEW.failures = 0 AND NEW.crashes = 0)
    ELSE false END))) IS NOT TRUE) EXECUTE FUNCTION holdfast_refuse_job()
-- next
DROP TRIGGER IF EXISTS holdfast_20_guard_insert ON holdfast_jobs
-- next
CREATE TRIGGER holdfast_20_guard_insert BEFORE INSERT ON holdfast_jobs FOR EACH ROW WHEN ((NEW.state = 'pending' AND NEW.seq = 1 AND NEW.transition = 'enqueued' AND NEW.attempt = 0 AND NEW.failures = 0 AND NEW.crashes = 0 AND json_typeof(NEW.payload) = 'object') IS NOT TRUE) EXECUTE FUNCTION holdfast_refuse_job()
-- next
DROP TRIGGER IF EXISTS holdfast_20_guard_payload ON holdfast_jobs
-- next
CREATE TRIGGER holdfast_20_guard_payload BEFORE UPDATE OF payload ON holdfast_jobs FOR EACH ROW WHEN (json_typeof(NEW.payload) <> 'object') EXECUTE FUNCTION holdfast_refuse_payload()
-- next
DROP TRIGGER IF EXISTS holdfast_20_guard_delete ON holdfast_jobs
-- next
CREATE TRIGGER holdfast_20_guard_delete BEFORE DELETE ON holdfast_jobs FOR EACH ROW WHEN (NOT (OLD.state IN ('succeeded', 'failed', 'cancelled'))) EXECUTE FUNCTION holdfast_refuse_job()
-- next
DROP TRIGGER IF EXISTS holdfast_20_guard_truncate ON holdfast_jobs
-- next
CREATE TRIGGER holdfast_20_guard_truncate BEFORE TRUNCATE ON holdfast_jobs FOR EACH STATEMENT EXECUTE FUNCTION holdfast_refuse_statement()
-- next
DROP TRIGGER IF EXISTS holdfast_30_audit_insert ON holdfast_jobs
-- next
CREATE TRIGGER holdfast_30_audit_insert AFTER INSERT ON holdfast_jobs REFERENCING NEW TABLE AS new_rows FOR EACH STATEMENT EXECUTE FUNCTION holdfast_audit_insert()
-- next
DROP TRIGGER IF EXISTS holdfast_30_audit_update ON holdfast_jobs
-- next
CREATE TRIGGER holdfast_30_audit_update AFTER UPDATE ON holdfast_jobs REFERENCING OLD TABLE AS old_rows NEW TABLE AS new_rows FOR EACH STATEMENT EXECUTE FUNCTION holdfast_audit_update()
-- next
DROP TRIGGER IF EXISTS holdfast_30_audit_delete ON holdfast_jobs
-- next
CREATE TRIGGER holdfast_30_audit_delete AFTER DELETE ON holdfast_jobs REFERENCING OLD TABLE AS old_rows FOR EACH STATEMENT EXECUTE FUNCTION holdfast_audit_delete()
-- next
DROP TRIGGER IF EXISTS holdfast_insert ON holdfast_events
-- next
CREATE TRIGGER holdfast_insert BEFORE INSERT ON holdfast_events FOR EACH STATEMENT WHEN (pg_trigger_depth() = 0) EXECUTE FUNCTION holdfast_refuse_statement()
-- next
DROP TRIGGER IF EXISTS holdfast_update ON holdfast_events
-- next
CREATE TRIGGER holdfast_update BEFORE UPDATE ON holdfast_events FOR EACH STATEMENT EXECUTE FUNCTION holdfast_refuse_statement()
-- next
DROP TRIGGER IF EXISTS holdfast_delete ON holdfast_events
-- next
CREATE TRIGGER holdfast_delete BEFORE DELETE ON holdfast_events FOR EACH STATEMENT WHEN (pg_trigger_depth() = 0) EXECUTE FUNCTION holdfast_refuse_statement()
-- next
DROP TRIGGER IF EXISTS holdfast_truncate ON holdfast_events
-- next
CREATE TRIGGER holdfast_truncate BEFORE TRUNCATE ON holdfast_events FOR EACH STATEMENT EXECUTE FUNCTION holdfast_refuse_statement()
-- next
DROP TRIGGER IF EXISTS holdfast_retire ON holdfast_retired_histories
-- next
CREATE TRIGGER holdfast_retire AFTER INSERT ON holdfast_retired_histories REFERENCING NEW TABLE AS new_rows FOR EACH STATEMENT EXECUTE FUNCTION holdfast_retire_histories()
-- next
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
WHERE started.event = 'claimed'
