"""Find jobs among millions: ids in order, from indexes that have them in order, and whole small sets from the others.

A *walk* follows one index in order of id, looks at so many rows at most, and stops as soon as it has found enough. A
*set* is read from an index that is in another order: all of it, up to a limit. On Postgres everything runs under the
settings of `following`.
"""

from __future__ import annotations

from collections.abc import Callable
from functools import cache
from typing import NamedTuple

from holdfast.domain.lifecycle import CLAIMABLE, TERMINAL, State
from holdfast.stores.schema import in_states
from holdfast.stores.schema.ledger import UNSUCCESSFUL
from holdfast.stores.statements.listing import listed_columns
from holdfast.stores.statements.words import Statement, Words

_READY = in_states(CLAIMABLE, "j.state")
_OVER = in_states(TERMINAL, "j.state")
_TESTED = "j.id, j.state, j.queue, j.task, j.source, j.spec_hash, j.lease_owner, j.last_error"

# What lies in an index that is in order of id, and by what it is in order before that.
WALKS = {
    "all": ("true", None),
    "retryable": ("j.state = 'retryable'", None),
    "failed": ("j.state = 'failed'", None),
    "task": (_OVER, "task"),
    "source": (f"j.source IS NOT NULL AND {_OVER}", "source"),
}


class Wanted(NamedTuple):
    """What makes one statement another: which conditions there are, the states, and where the page begins."""

    filters: tuple[str, ...]
    states: tuple[State, ...]
    newest_first: bool = True
    goes_on: bool = False

    @property
    def name(self) -> str:
        return f"{'.'.join(self.filters)}.{'.'.join(self.states)}.{self.newest_first}.{self.goes_on}"

    @property
    def order(self) -> str:
        return f"ORDER BY j.id {'DESC' if self.newest_first else 'ASC'}"

    def stretch(self, words: Words, along: str) -> str:
        """The rows of a walk behind that place, in order. Of a name, from it and up to it: were it said to be equal,
        the planner would know that the order of ids alone is enough, and follow those of all jobs."""
        rows, name = WALKS[along]
        if name is None:
            return f"{rows} AND {self.behind(words)} {self.order}"
        return f"{rows} AND {self._of(words, name, f':{name}')}"

    def of_each_task(self, words: Words) -> str:
        """The same of every task `t`."""
        return f"{_OVER} AND {self._of(words, 'task', 't.task')}"

    def _of(self, words: Words, column: str, name: str) -> str:
        ahead, back, way = ("<", ">=", "DESC") if self.newest_first else (">", "<=", "ASC")
        begin = f"(j.{column}, j.id) {ahead} ({name}, {words.id('after')})"
        begin = begin if self.goes_on else f"j.{column} {ahead}= {name}"
        return f"{begin} AND j.{column} {back} {name} ORDER BY j.{column} {way}, j.id {way}"

    def behind(self, words: Words) -> str:
        """Where the page before ended."""
        return f"j.id {'<' if self.newest_first else '>'} {words.id('after')}" if self.goes_on else "true"

    def conditions(self, words: Words) -> str:
        known = {
            "queues": f"j.queue {_among(words, 'queues')}",
            "task": "j.task = :task",
            "source": "j.source = :source",
            "spec_hash": "j.spec_hash >= :spec_hash AND j.spec_hash < :spec_end",
            "worker": "j.lease_owner = :worker",
            "error_code": f"{_code(words)} = :error_code",
        }
        states = in_states(self.states, "j.state") if len(self.states) < len(State) else "true"
        return " AND ".join([states, *(known[name] for name in self.filters)])


def _among(words: Words, parameter: str) -> str:
    """For a JSON array of texts."""
    if words.postgres:
        return f"= ANY (ARRAY{words.among(parameter)})"
    return f"IN {words.among(parameter)}"


def _code(words: Words) -> str:
    if words.postgres:
        return "j.last_error ->> 'code'"
    return "CASE WHEN json_valid(j.last_error) THEN json_extract(j.last_error, '$.code') END"


@cache
def walk(along: str, wanted: Wanted) -> Statement:
    """Ids in order, each with its number on the walk and whether it is wanted: the last that was looked at may not
    be. The conditions are tested outside, where they cannot talk the planner out of the index; and the outermost
    query sorts nothing, so that it ends as soon as it has enough."""

    def build(words: Words) -> str:
        return f"""
            SELECT {words.as_text("j.id")}, j.number, j.wanted FROM (
              SELECT j.id, row_number() OVER () AS number, {wanted.conditions(words)} AS wanted FROM (
                SELECT {_TESTED} FROM holdfast_jobs j WHERE {wanted.stretch(words, along)} LIMIT :look) j) j
            WHERE j.wanted OR j.number = :look LIMIT :limit"""

    return Statement(f"search.walk.{along}.{wanted.name}", build, replan=True)


@cache
def walk_each_task(wanted: Wanted) -> Statement:
    """A walk through each of these tasks. SQLite has no join of so many rows each: it reads them all, and numbers them
    afterwards."""

    def build(words: Words) -> str:
        walked = f"SELECT {_TESTED} FROM holdfast_jobs j WHERE {wanted.of_each_task(words)} LIMIT :look"
        if words.postgres:
            return f"""
                SELECT {words.as_text("j.id")}, j.number, j.wanted
                FROM {words.texts("tasks")} t (task) CROSS JOIN LATERAL (
                  SELECT j.id, j.number, j.wanted FROM (
                    SELECT j.id, row_number() OVER () AS number, {wanted.conditions(words)} AS wanted
                    FROM ({walked}) j) j
                  WHERE j.wanted OR j.number = :look LIMIT :limit) j"""
        by_task = f"(PARTITION BY j.task {wanted.order})"
        return f"""
            SELECT j.id, j.number, j.wanted FROM (
              SELECT j.id, j.wanted, row_number() OVER {by_task} AS number, sum(j.wanted) OVER {by_task} AS so_far
              FROM (
                SELECT j.id, j.task, {wanted.conditions(words)} AS wanted
                FROM (SELECT value AS task FROM json_each(:tasks)) t
                JOIN holdfast_jobs j ON j.id IN (SELECT j.id FROM ({walked}) j)) j) j
            WHERE (j.wanted AND j.so_far <= :limit) OR j.number = :look"""

    return Statement(f"search.walk.each_task.{wanted.name}", build, replan=True)


def _ended_tasks(_words: Words) -> str:
    """From one task to the next, by the index of what has ended."""
    first = f"SELECT j.task FROM holdfast_jobs j WHERE {_OVER}"
    return f"""
        WITH RECURSIVE tasks (task, number) AS (
          SELECT ({first} ORDER BY j.task LIMIT 1), 1
          UNION ALL
          SELECT ({first} AND j.task > t.task ORDER BY j.task LIMIT 1), t.number + 1 FROM tasks t
          WHERE t.task IS NOT NULL AND t.number < :groups)
        SELECT task FROM tasks WHERE task IS NOT NULL"""


Groups = tuple[str, str] | None  # the name of a recursive table, and how it is made
Rows = Callable[[Words, Wanted], tuple[Groups, str]]


@cache
def whole(name: str, wanted: Wanted) -> Statement:
    """A set: in the first row how much of it was read (rows, and groups of the index), then the ids that are wanted."""

    def build(words: Words) -> str:
        groups, rows = SETS[name](words, wanted)
        counted = f"(SELECT coalesce(max(number), 0) FROM {groups[0]})" if groups else "0"
        return f"""
            WITH RECURSIVE {f"{groups[1]}, " if groups else ""}found AS MATERIALIZED ({rows} LIMIT :most),
            wanted AS (
              SELECT j.id FROM found j WHERE {wanted.behind(words)} AND {wanted.conditions(words)}
              {wanted.order} LIMIT :limit)
            SELECT NULL, (SELECT count(*) FROM found), {counted}
            UNION ALL SELECT {words.as_text("w.id")}, 0, 0 FROM wanted w"""

    return Statement(f"search.whole.{name}.{wanted.name}", build, replan=True)


def _running(_words: Words, _wanted: Wanted) -> tuple[Groups, str]:
    """As many as the fleet has slots."""
    return None, f"SELECT {_TESTED} FROM holdfast_jobs j WHERE j.state = 'running'"


def _spec(_words: Words, wanted: Wanted) -> tuple[Groups, str]:
    """Of what has succeeded, or of what has ended otherwise: each has an index of its own."""
    state = "j.state = 'succeeded'" if State.SUCCEEDED in wanted.states else in_states(UNSUCCESSFUL, "j.state")
    where = "j.spec_hash IS NOT NULL AND j.spec_hash >= :spec_hash AND j.spec_hash < :spec_end"
    return None, f"SELECT {_TESTED} FROM holdfast_jobs j WHERE {state} AND {where}"


def _each(words: Words, rows: str) -> str:
    """The rows of every group `g`."""
    if not words.postgres:
        return f"JOIN holdfast_jobs j ON {rows}"
    return f"CROSS JOIN LATERAL (SELECT {_TESTED} FROM holdfast_jobs j WHERE {rows} LIMIT :most) j"


def _lanes(words: Words, wanted: Wanted) -> tuple[Groups, str]:
    """What can be claimed, lane by lane of the ready index: a lane that is not wanted costs one probe, however much
    waits in it."""
    lane, order = "coalesce(j.source, '')", "j.run_after, j.id"
    steps = (
        (f"j.queue = g.queue AND j.priority = g.priority AND j.task = g.task AND {lane} > g.lane", lane),
        ("j.queue = g.queue AND j.priority = g.priority AND j.task > g.task", f"j.task, {lane}"),
        ("j.queue = g.queue AND j.priority < g.priority", f"j.priority DESC, j.task, {lane}"),
        ("j.queue > g.queue", f"j.queue, j.priority DESC, j.task, {lane}"),
    )
    probes = ", ".join(
        f"(SELECT j.id FROM holdfast_jobs j WHERE {_READY} AND {where} ORDER BY {by}, {order} LIMIT 1)"
        for where, by in steps
    )
    head = "h.queue, h.priority, h.task, coalesce(h.source, '')"
    lanes = f"""
        lanes (queue, priority, task, lane, number) AS (
          SELECT {head}, 1 FROM holdfast_jobs h WHERE h.id = (
            SELECT j.id FROM holdfast_jobs j WHERE {_READY}
            ORDER BY j.queue, j.priority DESC, j.task, {lane}, {order} LIMIT 1)
          UNION ALL
          SELECT {head}, g.number + 1 FROM lanes g JOIN holdfast_jobs h ON h.id = coalesce({probes})
          WHERE g.number < :groups)"""
    known = {"queues": f"g.queue {_among(words, 'queues')}", "task": "g.task = :task", "source": "g.lane = :source"}
    taken = " AND ".join(known[name] for name in wanted.filters if name in known) or "true"
    rows = f"{_READY} AND j.queue = g.queue AND j.priority = g.priority AND j.task = g.task AND {lane} = g.lane"
    return ("lanes", lanes), f"SELECT {_TESTED} FROM (SELECT * FROM lanes g WHERE {taken}) g {_each(words, rows)}"


def _ended(words: Words, wanted: Wanted) -> tuple[Groups, str]:
    """What has ended in one state, queue by queue of the index of finished jobs; in words that the index of failed ones
    does not know, which has no queues."""
    [state] = wanted.states
    each = _each(words, f"{_OVER} AND j.queue = g.queue AND j.state >= '{state}' AND j.state <= '{state}'")
    rows = f"SELECT {_TESTED} FROM (SELECT * FROM queues g WHERE g.queue IS NOT NULL) g {each}"
    if "queues" in wanted.filters:
        listed = words.texts("queues")
        return ("queues", f"queues (queue, number) AS (SELECT DISTINCT value, 1 FROM {listed})"), rows
    first = f"SELECT j.queue FROM holdfast_jobs j WHERE {_OVER}"
    queues = f"""
        queues (queue, number) AS (
          SELECT ({first} ORDER BY j.queue LIMIT 1), 1
          UNION ALL
          SELECT ({first} AND j.queue > g.queue ORDER BY j.queue LIMIT 1), g.number + 1 FROM queues g
          WHERE g.queue IS NOT NULL AND g.number < :groups)"""
    return ("queues", queues), rows


SETS: dict[str, Rows] = {"running": _running, "spec": _spec, "lanes": _lanes, "ended": _ended}


def _these(words: Words) -> str:
    return f"SELECT {listed_columns(words)} FROM holdfast_jobs j WHERE j.id {words.is_one_of()}"


def _created_at(words: Words) -> str:
    return f"SELECT j.created_at FROM holdfast_jobs j WHERE j.id = {words.id('id')}"


ENDED_TASKS = Statement("search.ended_tasks", _ended_tasks, replan=True)
THESE = Statement("search.these", _these)
CREATED_AT = Statement("search.created_at", _created_at)
