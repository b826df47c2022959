"""Webhooks on SQLite: as on Postgres, a delivery job is left behind in the transaction that ends the job.

A column of SQLite takes any text, so what was typed by hand into `result` or `last_error` is asked whether it is JSON
before it is taken for such.
"""

from __future__ import annotations

from holdfast.domain.webhook import LONGEST_RESULT_BYTES
from holdfast.stores.guards import rules

WELL_FORMED = (
    "(NEW.webhook IS NULL OR (json_valid(NEW.webhook) AND json_type(NEW.webhook) = 'object'"
    " AND json_type(NEW.webhook, '$.url') = 'text' AND json_type(NEW.webhook, '$.on') = 'array'))"
)
_RESULT_IS_SHORT = f"length(CAST(NEW.result AS blob)) < {LONGEST_RESULT_BYTES}"


def _json(column: str, condition: str) -> str:
    return f"json(CASE WHEN {condition} AND json_valid({column}) THEN {column} ELSE 'null' END)"


def triggers(refuse: str) -> dict[str, str]:
    """`refuse` is the statement that turns an ill-formed webhook away."""
    return {
        "holdfast_guard_webhook": f"""
  BEFORE UPDATE OF webhook ON holdfast_jobs WHEN {WELL_FORMED} IS NOT TRUE BEGIN
    {refuse}
  END""",
        "holdfast_webhook": f"""
  AFTER UPDATE OF state ON holdfast_jobs
  WHEN {rules.ENDS_WITH_WEBHOOK} AND instr(json_extract(NEW.webhook, '$.on'), '"' || NEW.state || '"') > 0 BEGIN
    INSERT INTO holdfast_jobs ({rules.DELIVERY_COLUMNS})
    VALUES ({rules.DELIVERY_VALUES}, json_object(
      'url', json_extract(NEW.webhook, '$.url'), 'event', 'job.' || NEW.state, 'job', json_object(
        'id', NEW.id, 'task', NEW.task, 'queue', NEW.queue, 'state', NEW.state, 'attempt', NEW.attempt,
        'finished_at', NEW.finished_at,
        'result', {_json("NEW.result", f"NEW.state = 'succeeded' AND {_RESULT_IS_SHORT}")},
        'result_omitted', json(CASE WHEN NEW.state = 'succeeded' AND NOT ({_RESULT_IS_SHORT})
                               THEN 'true' ELSE 'false' END),
        'result_ref', CASE WHEN NEW.state = 'succeeded' THEN NEW.result_ref END,
        'error', {_json("NEW.last_error", "NEW.state = 'failed'")})));
  END""",
    }
