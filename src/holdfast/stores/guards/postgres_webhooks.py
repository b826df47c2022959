"""Webhooks on Postgres: a job that names one leaves a delivery job behind when it ends, in the same transaction.

The delivery exists if and only if the end was committed, through whatever door it came. A job without a webhook pays
for one test of a null in the row trigger's WHEN clause. Nothing in here may fail, for then the job could not end: a
webhook is judged when it comes into its column, and a result or an error is only copied, never read.
"""

from __future__ import annotations

from holdfast.domain.webhook import LONGEST_RESULT_BYTES
from holdfast.stores.guards import rules
from holdfast.stores.postgres_names import FIXED_PATH, SCHEMA

WELL_FORMED = (
    "(NEW.webhook IS NULL OR (json_typeof(NEW.webhook) = 'object' AND json_typeof(NEW.webhook -> 'url') = 'string'"
    " AND json_typeof(NEW.webhook -> 'on') = 'array'))"
)
_RESULT_IS_SHORT = f"octet_length(NEW.result::text) < {LONGEST_RESULT_BYTES}"

FUNCTIONS = (
    f"""
CREATE OR REPLACE FUNCTION holdfast_refuse_webhook() RETURNS trigger LANGUAGE plpgsql {FIXED_PATH} AS $$
BEGIN
  RAISE EXCEPTION USING ERRCODE = 'check_violation', MESSAGE = 'holdfast: job ' || OLD.id
    || ': a webhook is a JSON object with a text as url and an array as on';
END $$""",
    f"""
CREATE OR REPLACE FUNCTION holdfast_enqueue_delivery() RETURNS trigger LANGUAGE plpgsql {FIXED_PATH} AS $$
BEGIN
  IF strpos((NEW.webhook -> 'on')::text, '"' || NEW.state || '"') > 0 THEN
    INSERT INTO {SCHEMA}.holdfast_jobs ({rules.DELIVERY_COLUMNS})
    VALUES ({rules.DELIVERY_VALUES}, json_build_object(
      'url', NEW.webhook -> 'url', 'event', 'job.' || NEW.state, 'job', json_build_object(
        'id', NEW.id, 'task', NEW.task, 'queue', NEW.queue, 'state', NEW.state, 'attempt', NEW.attempt,
        'finished_at', to_char(NEW.finished_at AT TIME ZONE 'UTC', 'YYYY-MM-DD"T"HH24:MI:SS.US"Z"'),
        'result', CASE WHEN NEW.state = 'succeeded' AND {_RESULT_IS_SHORT} THEN NEW.result END,
        'result_omitted', NEW.state = 'succeeded' AND NOT coalesce({_RESULT_IS_SHORT}, true),
        'result_ref', CASE WHEN NEW.state = 'succeeded' THEN NEW.result_ref END,
        'error', CASE WHEN NEW.state = 'failed' THEN NEW.last_error END)));
  END IF;
  RETURN NULL;
END $$""",
)

TRIGGERS = (
    (
        "holdfast_20_guard_webhook",
        "holdfast_jobs",
        "BEFORE UPDATE OF webhook",
        f"FOR EACH ROW WHEN ({WELL_FORMED} IS NOT TRUE)",
        "holdfast_refuse_webhook",
    ),
    (
        "holdfast_40_webhook",
        "holdfast_jobs",
        "AFTER UPDATE OF state",
        f"FOR EACH ROW WHEN ({rules.ENDS_WITH_WEBHOOK})",
        "holdfast_enqueue_delivery",
    ),
)
