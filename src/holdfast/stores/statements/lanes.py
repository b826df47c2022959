"""The walk over what can be claimed, on Postgres: only rows that can be claimed now are ever looked at.

The ready index is grouped into *lanes*: queue, priority, task, source; within a lane rows lie in order of `run_after`
and id. The walk goes through the queues in the given order and in each through the priorities downwards (each step one
probe of the index); at a priority it finds the lanes that exist there, drops those it may not take (unknown task,
governed or closed source), reads the due head of each of the others and merges them. So neither a million rows
scheduled for next week nor a hundred thousand of a closed source or an unknown task is ever walked over, and the order
within a queue is strict: priority, then due time, then age.

The level recursion is lazy: the outer LIMIT stops it as soon as the batch is full. The clock is an uncorrelated
subquery, because a volatile call cannot be an index condition.
"""

from __future__ import annotations

from holdfast.domain.lifecycle import CLAIMABLE
from holdfast.domain.webhook import DELIVERY_TASK
from holdfast.stores.schema import in_states

READY = in_states(CLAIMABLE, "j.state")
LANE = "coalesce(j.source, '')"

GIVEN_QUEUES = """
        SELECT w.name, w.place
        FROM json_array_elements_text(CAST(:queues AS json)) WITH ORDINALITY AS w (name, place)"""
# No queues given means all of them. Their order is then drawn by lot: no queue may starve behind another's name.
ALL_QUEUES = f"""
        SELECT seen.name, random() AS place FROM (
          WITH RECURSIVE seen (name) AS (
            (SELECT j.queue FROM holdfast_jobs j WHERE {READY} ORDER BY j.queue LIMIT 1)
            UNION ALL
            SELECT further.queue FROM seen CROSS JOIN LATERAL (
              SELECT j.queue FROM holdfast_jobs j WHERE {READY} AND j.queue > seen.name ORDER BY j.queue LIMIT 1
            ) further
          ) SELECT name FROM seen) seen"""

QUEUE = "(SELECT names FROM open_queues)[level.place]"
# unnest, and not generate_series: the planner takes the latter for a thousand rows, and a statement that it takes to
# be that expensive is compiled (JIT) at every execution, for a hundred times the time that it takes to run.
_FURTHER_QUEUE = f"""
          SELECT CAST(further.place AS integer) + {{start}} - 1, top.priority
          FROM unnest((SELECT names FROM open_queues)[{{start}}:]) WITH ORDINALITY AS further (name, place)
          CROSS JOIN LATERAL (
            SELECT j.priority FROM holdfast_jobs j WHERE {READY} AND j.queue = further.name
            ORDER BY j.priority DESC LIMIT 1) top
          ORDER BY further.place LIMIT 1"""


def walk_levels(queues: str, queue_admits: str, limited: str = "") -> str:
    """CTEs: the queues that are open, and their priorities from the top, one after the other. `limited`: one more array
    of what is known of the queues."""
    return f"""
        WITH RECURSIVE open_queues AS MATERIALIZED (
          SELECT coalesce(array_agg(w.name ORDER BY w.place), '{{}}') AS names{limited}
          FROM ({queues}) w LEFT JOIN holdfast_queues q ON q.name = w.name
          WHERE q.paused_at IS NULL AND {queue_admits}),
        level (place, priority) AS (
          ({_FURTHER_QUEUE.format(start="1")})
          UNION ALL
          SELECT further.place, further.priority FROM level CROSS JOIN LATERAL (
            (SELECT level.place, j.priority FROM holdfast_jobs j
             WHERE {READY} AND j.queue = {QUEUE} AND j.priority < level.priority
             ORDER BY j.priority DESC LIMIT 1)
            UNION ALL
            ({_FURTHER_QUEUE.format(start="level.place + 1")})
            LIMIT 1) further)"""


HERE = f"{READY} AND j.queue = {QUEUE} AND j.priority = level.priority"


# Who names no task takes any but the engine's own: a worker in another language would not know what to do with it.
def task_admits(none_given: str, given: str, task: str = "lane.task") -> str:
    return f"({none_given} AND {task} <> '{DELIVERY_TASK}' OR {task} = {given})"


TASK_ADMITS = task_admits(
    "CAST(:tasks AS json) IS NULL",
    "ANY (ARRAY(SELECT value FROM json_array_elements_text(CAST(:tasks AS json))))",
)


def due_in_lane(columns: str, further: str = "") -> str:
    return f"""
                SELECT {columns} FROM holdfast_jobs j
                WHERE {HERE} AND j.task = lane.task AND {LANE} = lane.source
                  AND j.run_after <= (SELECT holdfast_now()) {further}
                ORDER BY j.run_after, j.id"""


def due_rows() -> str:
    """The due rows of one level, `:window` at most: the heads of all its lanes that no limit has a say in, merged."""
    return f"""
              SELECT ready.tid FROM (
                WITH RECURSIVE lane (task, source) AS (
                  (SELECT j.task, {LANE} FROM holdfast_jobs j WHERE {HERE} ORDER BY j.task, {LANE} LIMIT 1)
                  UNION ALL
                  SELECT further.task, further.source FROM lane CROSS JOIN LATERAL (
                    SELECT j.task, {LANE} AS source FROM holdfast_jobs j
                    WHERE {HERE} AND (j.task, {LANE}) > (lane.task, lane.source)
                    ORDER BY j.task, {LANE} LIMIT 1) further
                ) SELECT task, source FROM lane) lane
              CROSS JOIN LATERAL ({due_in_lane("j.ctid AS tid, j.run_after, j.id")} LIMIT :window) ready
              WHERE {TASK_ADMITS} AND NOT EXISTS (SELECT FROM holdfast_sources s WHERE s.name = lane.source)
              ORDER BY ready.run_after, ready.id LIMIT :window"""
