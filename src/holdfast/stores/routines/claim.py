"""Claim what no limit has a say in: queue by queue, priority by priority, as far as the batch needs.

At a priority there are lanes: task and source (`statements/lanes.py`). Nearly always there is one, and its jobs are
read, locked and claimed in the order of the index, past whatever others have locked. Several are merged by due time and
age: then candidates are read without a lock, a `window` of them, a little more than wanted, and locked one by one.

Every step is one probe of the index, of which the session keeps the plan; the same as one recursive query took three
times as long, which counts where a claim finds one job or none.

Rows come back in the order in which they are to be run. Where there is none to claim, a row of nulls says that limits
exist, in which others may wait: whoever is idle need not ask for that.
"""

from __future__ import annotations

from holdfast.stores.statements.claim import DIGEST, returned, take
from holdfast.stores.statements.lanes import LANE, READY, task_admits
from holdfast.stores.statements.sources import SOME_LIMIT_EXISTS
from holdfast.stores.statements.steady import function_settings
from holdfast.stores.statements.words import POSTGRES, Words

_WORDS = Words(POSTGRES)

COLUMNS = {
    "id": "text",
    "task": "text",
    "task_version": "text",
    "queue": "text",
    "source": "text",
    "payload": "text",
    "attempt": "integer",
    "failures": "integer",
    "crashes": "integer",
    "max_attempts": "integer",
    "max_crashes": "integer",
    "timeout_seconds": "float8",
    "lease_seconds": "float8",
    "traceparent": "text",
    "due_seconds": "float8",
}
_HERE = f"{READY} AND j.queue = queue_here AND j.priority = priority_here"
_DIGEST = DIGEST.replace(":secret", "secret").replace(":binding", "binding")


def _claim(candidates: str) -> str:
    return f"""
      RETURN QUERY WITH claimed AS (
        UPDATE holdfast_jobs AS j {take(_WORDS, _DIGEST, "worker")}
        WHERE j.ctid = ANY (ARRAY({candidates}))
        RETURNING {returned(_WORDS)}, j.run_after)
      SELECT {", ".join(f"claimed.{name}" for name in COLUMNS)} FROM claimed ORDER BY claimed.run_after, claimed.id;"""


_ONE_LANE = f"""
          SELECT j.ctid FROM holdfast_jobs j
          WHERE {_HERE} AND j.task = tasks_here[1] AND {LANE} = sources_here[1] AND j.run_after <= due_by
          ORDER BY j.run_after, j.id LIMIT wanted FOR NO KEY UPDATE OF j SKIP LOCKED"""
_MERGED = f"""
          SELECT locked.tid FROM (
            SELECT due.tid FROM unnest(tasks_here, sources_here) AS lane (task, source) CROSS JOIN LATERAL (
              SELECT j.ctid AS tid, j.run_after, j.id FROM holdfast_jobs j
              WHERE {_HERE} AND j.task = lane.task AND {LANE} = lane.source AND j.run_after <= due_by
              ORDER BY j.run_after, j.id LIMIT window_here) due
            ORDER BY due.run_after, due.id LIMIT window_here) ready
          CROSS JOIN LATERAL (
            SELECT j.ctid AS tid FROM holdfast_jobs j
            WHERE j.ctid = ready.tid AND {READY} FOR NO KEY UPDATE OF j SKIP LOCKED) locked
          LIMIT wanted"""

# The first row of a level names a lane; the next lane begins behind it.
_LANE_HERE = f"SELECT j.task, {LANE} INTO task_here, source_here FROM holdfast_jobs j WHERE {_HERE}"
_LEVEL_HERE = f"""SELECT j.priority, j.task, {LANE} INTO priority_here, task_here, source_here
    FROM holdfast_jobs j WHERE {READY} AND j.queue = queue_here"""
_BY_LANE = f"j.task, {LANE} LIMIT 1"
_ADMITTED = task_admits("tasks IS NULL", "ANY (tasks)", "task_here")

FUNCTION = f"""
CREATE OR REPLACE FUNCTION holdfast_claim(
  worker text, secret bytea, binding text, most integer, slack integer, queues text[], tasks text[])
RETURNS TABLE ({", ".join(f"{name} {kind}" for name, kind in COLUMNS.items())}) LANGUAGE plpgsql
{function_settings()} AS $$
#variable_conflict use_column
DECLARE
  due_by timestamptz := holdfast_now();
  wanted integer := most;
  window_here integer;
  found_here integer;
  queue_here text;
  priority_here smallint;
  task_here text;
  source_here text;
  tasks_here text[];
  sources_here text[];
BEGIN
  IF queues IS NULL THEN
    queues := '{{}}';
    SELECT j.queue INTO queue_here FROM holdfast_jobs j WHERE {READY} ORDER BY j.queue LIMIT 1;
    WHILE queue_here IS NOT NULL LOOP
      queues := queues || queue_here;
      SELECT j.queue INTO queue_here FROM holdfast_jobs j
      WHERE {READY} AND j.queue > queue_here ORDER BY j.queue LIMIT 1;
    END LOOP;
    IF cardinality(queues) > 1 THEN
      -- Their order is drawn by lot: no queue may starve behind another's name.
      queues := ARRAY(SELECT seen.name FROM unnest(queues) AS seen (name) ORDER BY random());
    END IF;
  END IF;
  FOREACH queue_here IN ARRAY queues LOOP
    CONTINUE WHEN EXISTS (
      SELECT FROM holdfast_queues q
      WHERE q.name = queue_here AND (q.paused_at IS NOT NULL OR q.max_running IS NOT NULL));
    {_LEVEL_HERE} ORDER BY j.priority DESC, {_BY_LANE};
    WHILE priority_here IS NOT NULL LOOP
      tasks_here := '{{}}';
      sources_here := '{{}}';
      WHILE task_here IS NOT NULL LOOP
        IF {_ADMITTED}
          AND (source_here = '' OR NOT EXISTS (SELECT FROM holdfast_sources s WHERE s.name = source_here))
        THEN
          tasks_here := tasks_here || task_here;
          sources_here := sources_here || source_here;
        END IF;
        {_LANE_HERE} AND (j.task, {LANE}) > (task_here, source_here) ORDER BY {_BY_LANE};
      END LOOP;
      found_here := 0;
      window_here := wanted + slack;
      IF cardinality(tasks_here) = 1 THEN{_claim(_ONE_LANE)}
        GET DIAGNOSTICS found_here = ROW_COUNT;
      ELSIF cardinality(tasks_here) > 1 THEN{_claim(_MERGED)}
        GET DIAGNOSTICS found_here = ROW_COUNT;
      END IF;
      wanted := wanted - found_here;
      IF wanted <= 0 THEN
        RETURN;
      END IF;
      {_LEVEL_HERE} AND j.priority < priority_here ORDER BY j.priority DESC, {_BY_LANE};
    END LOOP;
  END LOOP;
  IF wanted = most AND ({SOME_LIMIT_EXISTS}) THEN
    RETURN NEXT;
  END IF;
END $$"""
