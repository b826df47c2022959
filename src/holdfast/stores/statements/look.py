"""What a claim under limits would take, read without any lock, in the order of a claim.

What is plainly closed is passed over here: a source that is switched off, paused, out of tokens or full, one that is
half open with its probe under way, a full queue. Whether the others let somebody in is decided afterwards, under their
locks; a name that turned out to have no more room is handed in as `closed` or `shut` when the claim looks once more.

At a priority with a thousand lanes some are looked at, from where the last walk left off and round; what lies at lower
priorities is then left alone (`cut`), and whoever needs more looks again. They are merged exactly, by due time and age,
without reading a batch of each: first a few of every lane; what comes after the last one that was read of any lane (the
horizon) is not known to be in order, and is read in full, in the rare case that it is needed at all.

These statements run under `STEADY`: always by index, whatever the planner knew of the tables when it first saw them, so
that they can stay prepared. To plan this walk takes longer than to run it.

On SQLite, which has no LATERAL, it is a loop over smaller statements (`statements/sqlite_look.py`).
"""

from __future__ import annotations

from holdfast.stores.statements import admission, steady
from holdfast.stores.statements.lanes import (
    ALL_QUEUES,
    GIVEN_QUEUES,
    HERE,
    LANE,
    QUEUE,
    TASK_ADMITS,
    due_in_lane,
    walk_levels,
)
from holdfast.stores.statements.words import Statement, Words

# So many more than are wanted are looked at, and so many of a limited source may be locked by somebody before its other
# jobs have to wait for the next look.
SPARE = 16

STEADY = Statement(
    "look.steady",
    lambda _words: "SELECT " + ", ".join(f"set_config('{k}', '{v}', true)" for k, v in steady.SETTINGS.items()),
)


def room(words: Words) -> str:
    """How many source `s` would let in now."""
    least = "least" if words.postgres else "min"
    whole = "floor" if words.postgres else ""
    tokens = f"CAST({whole}({admission.level(words, words.fixed_now)} + 1e-9) AS integer)"
    places = f"CASE WHEN s.max_concurrent IS NOT NULL THEN s.max_concurrent - {admission.in_use('s.name')} END"
    probe = f"CASE WHEN {admission.HALF_OPEN} THEN 1 - {admission.probes()} END"
    bounds = ", ".join(f"coalesce({bound}, {admission.NO_BOUND})" for bound in (tokens, places, probe))
    return f"{least}({bounds})"


_START = "(CAST(:after_task AS text), CAST(:after_source AS text))"


def _next_lane(again: str, where: str) -> str:
    """The first job of a lane is its earliest: if that is not due, nothing there is."""
    return f"""
                  (SELECT j.task, {LANE} AS source, j.run_after AS earliest, {again} AS again
                   FROM holdfast_jobs j WHERE {HERE} AND {where}
                   ORDER BY j.task, {LANE}, j.run_after LIMIT 1)"""


def _all_lanes() -> str:
    """CTE: the lanes of one level, from where the last walk left off, and once round."""
    return f"""
              lane (task, source, earliest, again) AS (
                (SELECT start.* FROM (
                  {_next_lane("false", f"(j.task, {LANE}) > {_START}")}
                  UNION ALL
                  {_next_lane("true", ":after_task <> ''")}
                  LIMIT 1) start)
                UNION ALL
                SELECT further.* FROM lane CROSS JOIN LATERAL (
                  {_next_lane("lane.again", f"(j.task, {LANE}) > (lane.task, lane.source)")}
                  UNION ALL
                  {_next_lane("true", ":after_task <> '' AND NOT lane.again")}
                  LIMIT 1) further
                WHERE NOT (further.again AND (further.task, further.source) > {_START}))"""


def _due_rows(words: Words) -> str:
    """Of one level, `:window` at most: the heads of its lanes that may be taken, merged."""
    due, told = "j.id, j.run_after", "id, task, source, limited"
    return f"""
              WITH RECURSIVE {_all_lanes()},
              open_lane AS MATERIALIZED (
                SELECT lane.task, lane.source, s.room + {SPARE} AS room, s.limited
                FROM lane LEFT JOIN LATERAL (
                  SELECT s.name, {admission.LIMITED} AS limited,
                         CASE WHEN {admission.is_open(words)} THEN {room(words)} END AS room
                  FROM holdfast_sources s WHERE s.name = lane.source LIMIT 1) s ON true
                WHERE {TASK_ADMITS} AND lane.earliest <= {words.fixed_now} AND (s.name IS NULL OR s.room > 0)
                  AND lane.source <> ALL (ARRAY(SELECT value FROM json_array_elements_text(CAST(:closed AS json))))
                LIMIT :lanes),
              depth AS MATERIALIZED (
                SELECT 4 + 2 * :window / greatest(count(*), 1) AS few, count(*) >= :lanes AS cut FROM open_lane),
              head AS MATERIALIZED (
                SELECT ready.*, lane.task, lane.source, lane.limited
                FROM depth CROSS JOIN open_lane lane CROSS JOIN LATERAL (
                  SELECT due.*, row_number() OVER () AS nth
                  FROM ({due_in_lane(due)} LIMIT least(depth.few, lane.room, :window)) due) ready),
              horizon AS MATERIALIZED (
                SELECT head.run_after, head.id FROM head JOIN depth ON head.nth = depth.few
                ORDER BY head.run_after, head.id LIMIT 1)
              (SELECT {told}, (SELECT cut FROM depth) AS cut FROM head
               WHERE coalesce((head.run_after, head.id) <= (SELECT run_after, id FROM horizon), true)
               ORDER BY head.run_after, head.id LIMIT :window)
              UNION ALL
              (SELECT {", ".join(f"ready.{name}" if name == "id" else f"lane.{name}" for name in told.split(", "))},
                      (SELECT cut FROM depth)
               FROM horizon CROSS JOIN open_lane lane CROSS JOIN LATERAL (
                 {due_in_lane(due, "AND (j.run_after, j.id) > (horizon.run_after, horizon.id)")}
                 LIMIT least(:window, lane.room)) ready
               ORDER BY ready.run_after, ready.id LIMIT :window)
              LIMIT :window"""


def _look(words: Words, queues: str) -> str:
    running = "(SELECT count(*) FROM holdfast_jobs r WHERE r.state = 'running' AND r.queue = q.name)"
    queue_admits = f"""(q.max_running IS NULL OR q.max_running > {running})
            AND w.name <> ALL (ARRAY(SELECT value FROM json_array_elements_text(CAST(:shut AS json))))"""
    limited = ", array_agg(q.max_running IS NOT NULL ORDER BY w.place) AS limited"
    return f"""{walk_levels(queues, queue_admits, limited)}
        SELECT CAST(ready.id AS text), ready.task, ready.source, {QUEUE}, coalesce(ready.limited, false),
               (SELECT limited FROM open_queues)[level.place], ready.cut, level.priority
        FROM level CROSS JOIN LATERAL ({_due_rows(words)}) ready LIMIT :window"""


def _waiting(words: Words, queues: str) -> str:
    """The sources that have something due, each with how it stands."""
    paused = admission.seconds_between(words, words.fixed_now, "s.paused_until")
    return f"""{walk_levels(queues, "true")}
        SELECT {admission.standing(words)}, {paused}
        FROM level CROSS JOIN LATERAL (
          WITH RECURSIVE {_all_lanes()}
          SELECT lane.source FROM lane
          WHERE {TASK_ADMITS} AND lane.earliest <= {words.fixed_now} AND lane.source <> '' LIMIT :lanes) waiting
        JOIN holdfast_sources s ON s.name = waiting.source
        WHERE s.enabled LIMIT :lanes"""


LOOK = Statement("look", lambda words: _look(words, GIVEN_QUEUES))
LOOK_ALL_QUEUES = Statement("look.all_queues", lambda words: _look(words, ALL_QUEUES))
WAITING = Statement("look.waiting", lambda words: _waiting(words, GIVEN_QUEUES))
WAITING_ALL_QUEUES = Statement("look.waiting.all_queues", lambda words: _waiting(words, ALL_QUEUES))
