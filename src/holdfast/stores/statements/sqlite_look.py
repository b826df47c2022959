"""The look of `statements/look.py` on SQLite, two statements a priority: its lanes, and their heads.

`state IN (…)` stands in each as the partial index has it, or SQLite would not use it.
"""

from __future__ import annotations

from holdfast.domain.webhook import DELIVERY_TASK
from holdfast.stores.schema import CLAIMABLE_SQL
from holdfast.stores.statements import admission
from holdfast.stores.statements.look import room
from holdfast.stores.statements.words import Statement, Words


def _sqlite(name: str, sql: str) -> Statement:
    return Statement(f"sqlite_look.{name}", lambda _words: sql)


NEXT_QUEUE = _sqlite(
    "next_queue",
    f"SELECT queue FROM holdfast_jobs WHERE {CLAIMABLE_SQL} AND queue > :queue ORDER BY queue LIMIT 1",
)
NEXT_PRIORITY = _sqlite(
    "next_priority",
    f"SELECT priority FROM holdfast_jobs WHERE {CLAIMABLE_SQL} AND queue = :queue AND priority < :below"
    " ORDER BY priority DESC LIMIT 1",
)
QUEUES = _sqlite(
    "queues",
    """SELECT q.name, q.paused_at IS NOT NULL, q.max_running,
         CASE WHEN q.max_running IS NOT NULL
           THEN (SELECT count(*) FROM holdfast_jobs r WHERE r.state = 'running' AND r.queue = q.name) END
       FROM holdfast_queues q WHERE q.paused_at IS NOT NULL OR q.max_running IS NOT NULL""",
)


def _lane(alias: str) -> str:
    return f"coalesce({alias}.source, '')"


def _here(alias: str) -> str:
    return f"{alias}.{CLAIMABLE_SQL} AND {alias}.queue = :queue AND {alias}.priority = :priority"


def _next_lane(task: str, source: str) -> str:
    """The first job of the lane after this one: of the same task, or of a further one."""
    found = f"SELECT n.rowid FROM holdfast_jobs n WHERE {_here('n')} AND"
    order = f"{_lane('n')}, n.run_after, n.id LIMIT 1"
    return f"""coalesce(
          ({found} n.task = {task} AND {_lane("n")} > {source} ORDER BY {order}),
          ({found} n.task > {task} ORDER BY n.task, {order}))"""


def _sqlite_lanes(columns: str, source: str, where: str, most: str = ":lanes") -> str:
    """Lanes that have something due, from a start to an end (none: all further ones), by the first job of each, which
    is its earliest."""
    until = f"(:until_task = '' OR (x.task, {_lane('x')}) <= (:until_task, :until_source))"
    some = f"x.task IN (SELECT value FROM json_each(:tasks)) OR :tasks IS NULL AND x.task <> '{DELIVERY_TASK}'"
    return f"""
        WITH RECURSIVE lane (place) AS (
          SELECT {_next_lane(":after_task", ":after_source")}
          UNION ALL
          SELECT {_next_lane("x.task", _lane("x"))}
          FROM lane JOIN holdfast_jobs x ON x.rowid = lane.place WHERE {until})
        SELECT x.task, {_lane("x")}, {columns}
        FROM lane CROSS JOIN holdfast_jobs x ON x.rowid = lane.place {source}
        WHERE ({some}) AND {until} AND x.run_after <= :now AND {where}
        LIMIT {most}"""


def _open_lanes(words: Words) -> str:
    lanes = _sqlite_lanes(
        f"""s.name IS NOT NULL AND {admission.LIMITED}, s.rate_limit_per_minute IS NOT NULL,
          CASE WHEN s.name IS NOT NULL THEN {room(words)} END AS room""",
        "LEFT JOIN holdfast_sources s ON s.name = x.source",
        f"""(s.name IS NULL OR {admission.is_open(words)})
          AND {_lane("x")} NOT IN (SELECT value FROM json_each(:closed))""",
        most="-1",
    )
    # With a LIMIT in it the inner query stays one, and the room of a source is worked out once.
    return f"SELECT * FROM ({lanes}) WHERE room IS NULL OR room > 0 LIMIT :lanes"


def _ungoverned_lanes(_words: Words) -> str:
    """Of sources that have no row."""
    return _sqlite_lanes("false, false, NULL", "LEFT JOIN holdfast_sources s ON s.name = x.source", "s.name IS NULL")


def _waiting_lanes(words: Words) -> str:
    paused = admission.seconds_between(words, ":now", "s.paused_until")
    return _sqlite_lanes(
        f"{admission.standing(words)}, {paused}", "JOIN holdfast_sources s ON s.name = x.source", "s.enabled"
    )


def _heads(words: Words) -> str:
    """The first so many of each lane, as JSON: SQLite has no LATERAL, and to find each row once more by its id costs as
    much as to find it."""
    lanes = words.rows({"task": "text", "source": "text"}, "given")
    return f"""
        WITH l AS MATERIALIZED (SELECT * FROM {lanes})
        SELECT l.task, l.source, (
          SELECT json_group_array(json_array(due.run_after, due.id)) FROM (
            SELECT h.run_after, h.id FROM holdfast_jobs h
            WHERE {_here("h")} AND h.task = l.task AND {_lane("h")} = l.source AND h.run_after <= :now
            ORDER BY h.run_after, h.id LIMIT :depth) due)
        FROM l"""


OPEN_LANES = Statement("sqlite_look.open_lanes", _open_lanes)
UNGOVERNED_LANES = Statement("sqlite_look.ungoverned_lanes", _ungoverned_lanes)
WAITING_LANES = Statement("sqlite_look.waiting_lanes", _waiting_lanes)
HEADS = Statement("sqlite_look.heads", _heads)
