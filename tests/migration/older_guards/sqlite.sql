DROP TRIGGER IF EXISTS holdfast_manual
-- next
CREATE TRIGGER holdfast_manual
  BEFORE UPDATE ON holdfast_jobs WHEN NEW.seq = OLD.seq AND (NEW.state <> OLD.state OR (NEW.state = 'running' AND OLD.cancel_requested_at IS NULL AND NEW.cancel_requested_at IS NOT NULL)) BEGIN
    UPDATE holdfast_jobs SET
      task = NEW.task,
      task_version = NEW.task_version,
      queue = NEW.queue,
      state = NEW.state,
      priority = NEW.priority,
      run_after = NEW.run_after,
      payload = NEW.payload,
      spec_hash = NEW.spec_hash,
      unique_key = NEW.unique_key,
      source = NEW.source,
      attempt = CASE WHEN NEW.state = 'running' AND OLD.state <> 'running' THEN OLD.attempt + 1 ELSE NEW.attempt END,
      failures = CASE WHEN OLD.state IN ('succeeded', 'failed', 'cancelled') AND NEW.state = 'pending' THEN 0 WHEN OLD.state = 'running' AND NEW.state IN ('retryable', 'failed') AND NEW.failures = OLD.failures AND NEW.crashes = OLD.crashes THEN OLD.failures + 1 ELSE NEW.failures END,
      crashes = CASE WHEN OLD.state IN ('succeeded', 'failed', 'cancelled') AND NEW.state = 'pending' THEN 0 ELSE NEW.crashes END,
      max_attempts = NEW.max_attempts,
      max_crashes = NEW.max_crashes,
      retry = NEW.retry,
      timeout_seconds = NEW.timeout_seconds,
      lease_seconds = NEW.lease_seconds,
      lease_owner = CASE WHEN NEW.state <> 'running' THEN NULL WHEN NEW.state = 'running' AND OLD.state <> 'running' THEN coalesce(NEW.lease_owner, 'manual') ELSE NEW.lease_owner END,
      lease_token = CASE WHEN NEW.state <> 'running' THEN NULL ELSE NEW.lease_token END,
      lease_expires_at = CASE WHEN NEW.state <> 'running' THEN NULL ELSE NEW.lease_expires_at END,
      claimed_at = CASE WHEN NEW.state = 'running' AND OLD.state <> 'running' THEN max((strftime('%Y-%m-%dT%H:%M:%f', 'now') || '000Z'), OLD.updated_at) ELSE NEW.claimed_at END,
      heartbeat_at = NEW.heartbeat_at,
      cancel_requested_at = CASE WHEN OLD.state IN ('succeeded', 'failed', 'cancelled') AND NEW.state = 'pending' THEN NULL WHEN NEW.cancel_requested_at IS NULL THEN NULL WHEN OLD.cancel_requested_at IS NULL THEN max((strftime('%Y-%m-%dT%H:%M:%f', 'now') || '000Z'), OLD.updated_at) ELSE OLD.cancel_requested_at END,
      progress = NEW.progress,
      result = NEW.result,
      result_ref = NEW.result_ref,
      last_error = NEW.last_error,
      traceparent = NEW.traceparent,
      replay_of = NEW.replay_of,
      seq = OLD.seq + 1,
      transition = CASE OLD.state || '>' || NEW.state
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
    ELSE 'none' END,
      transition_detail = json_object('manual', json('true')),
      created_at = NEW.created_at,
      updated_at = max((strftime('%Y-%m-%dT%H:%M:%f', 'now') || '000Z'), OLD.updated_at),
      started_at = CASE WHEN NEW.state = 'running' AND OLD.state <> 'running' THEN coalesce(OLD.started_at, max((strftime('%Y-%m-%dT%H:%M:%f', 'now') || '000Z'), OLD.updated_at)) ELSE NEW.started_at END,
      finished_at = CASE WHEN NEW.state IN ('succeeded', 'failed', 'cancelled') THEN max((strftime('%Y-%m-%dT%H:%M:%f', 'now') || '000Z'), OLD.updated_at) WHEN OLD.state IN ('succeeded', 'failed', 'cancelled') AND NEW.state = 'pending' THEN NULL ELSE NEW.finished_at END
    WHERE id = OLD.id;
    SELECT RAISE(IGNORE);
  END
-- next
DROP TRIGGER IF EXISTS holdfast_guard
-- next
CREATE TRIGGER holdfast_guard
  BEFORE UPDATE ON holdfast_jobs WHEN (NEW.seq = OLD.seq AND (NEW.state <> OLD.state OR (NEW.state = 'running' AND OLD.cancel_requested_at IS NULL AND NEW.cancel_requested_at IS NOT NULL))) IS NOT TRUE AND (NEW.id = OLD.id AND ((NEW.seq = OLD.seq AND NEW.state = OLD.state AND NEW.transition = OLD.transition AND NEW.attempt = OLD.attempt AND NEW.failures = OLD.failures AND NEW.crashes = OLD.crashes AND NEW.updated_at = OLD.updated_at AND coalesce(NEW.lease_token, '') = coalesce(OLD.lease_token, '') AND coalesce(NEW.lease_owner, '') = coalesce(OLD.lease_owner, '') AND (NEW.finished_at = OLD.finished_at OR (NEW.finished_at IS NULL AND OLD.finished_at IS NULL)) AND (NEW.cancel_requested_at IS NULL) = (OLD.cancel_requested_at IS NULL)) OR (NEW.seq = OLD.seq + 1 AND NEW.updated_at >= OLD.updated_at AND CASE NEW.transition
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
    ELSE false END))) IS NOT TRUE BEGIN
    SELECT RAISE(ABORT, 'holdfast: this transition is not in the lifecycle');
  END
-- next
DROP TRIGGER IF EXISTS holdfast_guard_insert
-- next
CREATE TRIGGER holdfast_guard_insert
  BEFORE INSERT ON holdfast_jobs
  WHEN (NEW.state = 'pending' AND NEW.seq = 1 AND NEW.transition = 'enqueued' AND NEW.attempt = 0 AND NEW.failures = 0 AND NEW.crashes = 0 AND typeof(NEW.id) = 'text' AND length(NEW.id) = 36 AND NEW.id = lower(NEW.id)
        AND json_valid(NEW.payload) AND json_type(NEW.payload) = 'object' AND typeof(NEW.task) = 'text' AND typeof(NEW.queue) = 'text' AND typeof(NEW.priority) = 'integer' AND typeof(NEW.max_attempts) = 'integer' AND typeof(NEW.max_crashes) = 'integer' AND typeof(NEW.lease_seconds) IN ('integer', 'real') AND typeof(NEW.timeout_seconds) IN ('null', 'integer', 'real') AND NEW.run_after GLOB '[0-9][0-9][0-9][0-9]-[0-9][0-9]-[0-9][0-9]T[0-9][0-9]:[0-9][0-9]:[0-9][0-9].[0-9][0-9][0-9][0-9][0-9][0-9]Z') IS NOT TRUE BEGIN
    SELECT RAISE(ABORT, 'holdfast: a job is inserted as pending, with a JSON object as payload and a UUID as id');
  END
-- next
DROP TRIGGER IF EXISTS holdfast_guard_kinds
-- next
CREATE TRIGGER holdfast_guard_kinds
  BEFORE UPDATE OF task, queue, priority, run_after, max_attempts, max_crashes, lease_seconds, timeout_seconds
  ON holdfast_jobs WHEN (typeof(NEW.task) = 'text' AND typeof(NEW.queue) = 'text' AND typeof(NEW.priority) = 'integer' AND typeof(NEW.max_attempts) = 'integer' AND typeof(NEW.max_crashes) = 'integer' AND typeof(NEW.lease_seconds) IN ('integer', 'real') AND typeof(NEW.timeout_seconds) IN ('null', 'integer', 'real') AND NEW.run_after GLOB '[0-9][0-9][0-9][0-9]-[0-9][0-9]-[0-9][0-9]T[0-9][0-9]:[0-9][0-9]:[0-9][0-9].[0-9][0-9][0-9][0-9][0-9][0-9]Z') IS NOT TRUE BEGIN
    SELECT RAISE(ABORT, 'holdfast: a column was given the wrong kind of value; times look like 2026-11-15T20:50:59.123456Z');
  END
-- next
DROP TRIGGER IF EXISTS holdfast_guard_payload
-- next
CREATE TRIGGER holdfast_guard_payload
  BEFORE UPDATE OF payload ON holdfast_jobs
  WHEN (json_valid(NEW.payload) AND json_type(NEW.payload) = 'object') IS NOT TRUE BEGIN
    SELECT RAISE(ABORT, 'holdfast: a payload is a JSON object');
  END
-- next
DROP TRIGGER IF EXISTS holdfast_guard_replace_insert
-- next
CREATE TRIGGER holdfast_guard_replace_insert
  BEFORE INSERT ON holdfast_jobs WHEN EXISTS (SELECT 1 FROM holdfast_jobs WHERE id = NEW.id) OR (NEW.unique_key IS NOT NULL AND NEW.state IN ('pending', 'running', 'retryable') AND EXISTS (
    SELECT 1 FROM holdfast_jobs other WHERE other.task = NEW.task AND other.unique_key = NEW.unique_key
      AND other.unique_key IS NOT NULL AND other.state IN ('pending', 'running', 'retryable') AND other.id <> NEW.id)) BEGIN
    SELECT RAISE(ABORT, 'holdfast: the id or the unique key is taken');
  END
-- next
DROP TRIGGER IF EXISTS holdfast_guard_replace_update
-- next
CREATE TRIGGER holdfast_guard_replace_update
  BEFORE UPDATE OF task, unique_key, state ON holdfast_jobs WHEN (NEW.unique_key IS NOT NULL AND NEW.state IN ('pending', 'running', 'retryable') AND EXISTS (
    SELECT 1 FROM holdfast_jobs other WHERE other.task = NEW.task AND other.unique_key = NEW.unique_key
      AND other.unique_key IS NOT NULL AND other.state IN ('pending', 'running', 'retryable') AND other.id <> NEW.id)) BEGIN
    SELECT RAISE(ABORT, 'holdfast: the unique key is taken');
  END
-- next
DROP TRIGGER IF EXISTS holdfast_guard_delete
-- next
CREATE TRIGGER holdfast_guard_delete
  BEFORE DELETE ON holdfast_jobs WHEN (OLD.state IN ('succeeded', 'failed', 'cancelled')) IS NOT TRUE BEGIN
    SELECT RAISE(ABORT, 'holdfast: only a finished job is deleted');
  END
-- next
DROP TRIGGER IF EXISTS holdfast_audit_insert
-- next
CREATE TRIGGER holdfast_audit_insert
  AFTER INSERT ON holdfast_jobs BEGIN
    INSERT INTO holdfast_events (job_id, seq, at, event, from_state, to_state, attempt, worker, lease, detail)
    VALUES (NEW.id, 1, NEW.updated_at, 'enqueued', NULL, 'pending', 0, NULL, NULL, NEW.transition_detail);
  END
-- next
DROP TRIGGER IF EXISTS holdfast_audit_update
-- next
CREATE TRIGGER holdfast_audit_update
  AFTER UPDATE ON holdfast_jobs WHEN NEW.seq <> OLD.seq BEGIN
    INSERT INTO holdfast_events (job_id, seq, at, event, from_state, to_state, attempt, worker, lease, detail)
    VALUES (NEW.id, NEW.seq, NEW.updated_at, NEW.transition, OLD.state, NEW.state, NEW.attempt,
            coalesce(NEW.lease_owner, OLD.lease_owner), coalesce(NEW.lease_token, OLD.lease_token),
            NEW.transition_detail);
  END
-- next
DROP TRIGGER IF EXISTS holdfast_audit_delete
-- next
CREATE TRIGGER holdfast_audit_delete
  AFTER DELETE ON holdfast_jobs BEGIN
    INSERT INTO holdfast_events (job_id, seq, at, event, from_state, to_state, attempt, worker, lease, detail)
    VALUES (OLD.id, OLD.seq + 1, max((strftime('%Y-%m-%dT%H:%M:%f', 'now') || '000Z'), OLD.updated_at), 'pruned', OLD.state, NULL, OLD.attempt, NULL, NULL,
            json_object('task', OLD.task, 'queue', OLD.queue));
  END
-- next
DROP TRIGGER IF EXISTS holdfast_events_insert
-- next
CREATE TRIGGER holdfast_events_insert
  BEFORE INSERT ON holdfast_events
  WHEN EXISTS (SELECT 1 FROM holdfast_events WHERE job_id = NEW.job_id AND seq = NEW.seq)
    OR NOT CASE WHEN NEW.event = 'pruned'
      THEN NOT EXISTS (SELECT 1 FROM holdfast_jobs WHERE id = NEW.job_id)
       AND EXISTS (SELECT 1 FROM holdfast_events
                   WHERE job_id = NEW.job_id AND seq = NEW.seq - 1 AND event <> 'pruned')
      ELSE EXISTS (SELECT 1 FROM holdfast_jobs
                   WHERE id = NEW.job_id AND seq = NEW.seq AND transition = NEW.event AND updated_at = NEW.at) END
  BEGIN
    SELECT RAISE(ABORT, 'holdfast: the audit log is append-only and written by triggers');
  END
-- next
DROP TRIGGER IF EXISTS holdfast_events_update
-- next
CREATE TRIGGER holdfast_events_update
  BEFORE UPDATE ON holdfast_events BEGIN
    SELECT RAISE(ABORT, 'holdfast: the audit log is append-only and written by triggers');
  END
-- next
DROP TRIGGER IF EXISTS holdfast_events_delete
-- next
CREATE TRIGGER holdfast_events_delete
  BEFORE DELETE ON holdfast_events
  WHEN NOT EXISTS (SELECT 1 FROM holdfast_retired_histories WHERE job_id = OLD.job_id) BEGIN
    SELECT RAISE(ABORT, 'holdfast: the audit log is append-only and written by triggers');
  END
-- next
DROP TRIGGER IF EXISTS holdfast_retire_guard
-- next
CREATE TRIGGER holdfast_retire_guard
  BEFORE INSERT ON holdfast_retired_histories
  WHEN EXISTS (SELECT 1 FROM holdfast_jobs WHERE id = NEW.job_id) BEGIN
    SELECT RAISE(ABORT, 'holdfast: a history is retired only after its job was pruned');
  END
-- next
DROP TRIGGER IF EXISTS holdfast_retire
-- next
CREATE TRIGGER holdfast_retire
  AFTER INSERT ON holdfast_retired_histories BEGIN
    INSERT INTO holdfast_meta (key, value)
    SELECT 'histories_retired', json_object('through', max(at), 'jobs', 1, 'events', count(*))
    FROM holdfast_events WHERE job_id = NEW.job_id GROUP BY job_id
    ON CONFLICT (key) DO UPDATE SET value = json_object(
      'through', max(json_extract(value, '$.through'), json_extract(excluded.value, '$.through')),
      'jobs', json_extract(value, '$.jobs') + 1,
      'events', json_extract(value, '$.events') + json_extract(excluded.value, '$.events'));
    DELETE FROM holdfast_events WHERE job_id = NEW.job_id;
    DELETE FROM holdfast_retired_histories WHERE job_id = NEW.job_id;
  END
-- next
DROP VIEW IF EXISTS holdfast_attempts
-- next
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
WHERE started.event = 'claimed'
