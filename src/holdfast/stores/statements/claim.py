"""Claim a batch: only rows that can be claimed now are ever looked at.

The ready index is grouped into *lanes*: queue, priority, task, source; within a lane rows lie in order of `run_after`
and id. A claim walks the queues in the given order and in each the priorities downwards (each step one probe of the
index); at a priority it finds the lanes that exist there, drops those it may not take (unknown task, governed or closed
source), reads the due head of each of the others and merges them. So neither a million rows scheduled for next week
nor a hundred thousand of a closed source or an unknown task is ever walked over, and the order within a queue is
strict: priority, then due time, then age.

On Postgres that is one statement. The level recursion is lazy: the outer LIMIT stops it as soon as the batch is full.
The clock is an uncorrelated subquery, because a volatile call cannot be an index condition. Candidates are read without
a lock (`window` of them, a little more than wanted) and then locked one by one, skipping what others hold, by their
physical address: no second look-up. The token's digest is computed in the statement from one secret per claim, which
is how Python knows every row's token afterwards without having been told.

SQLite has no LATERAL; there the same walk is a loop over the small statements at the end of this file.
"""

from __future__ import annotations

from collections.abc import Callable

from holdfast.domain.lifecycle import CLAIMABLE
from holdfast.domain.webhook import DELIVERY_TASK
from holdfast.stores.schema import CLAIMABLE_SQL, SOURCE_LANE, in_states
from holdfast.stores.statements.words import Statement, Words

_READY = in_states(CLAIMABLE, "j.state")
_LANE = "coalesce(j.source, '')"
RETURNED = (
    "task",
    "task_version",
    "queue",
    "source",
    "payload",
    "attempt",
    "failures",
    "crashes",
    "max_attempts",
    "max_crashes",
    "timeout_seconds",
    "lease_seconds",
    "traceparent",
    "priority",
    "run_after",
)


def _take(words: Words, digest: str) -> str:
    """The SET clause of a claim."""
    return f"""
        SET state = 'running', transition = 'claimed', transition_detail = NULL, seq = j.seq + 1,
            attempt = j.attempt + 1, lease_owner = :worker, lease_token = {digest},
            lease_expires_at = {words.after("j.lease_seconds")}, claimed_at = {words.now}, heartbeat_at = NULL,
            started_at = coalesce(j.started_at, {words.now}), updated_at = {words.transition_time}"""


# The digest of `digests.lease_token(secret, id)`, as `digests.token_digest` makes it.
_POSTGRES_DIGEST = (
    "left(encode(sha256(convert_to("
    "encode(sha256(CAST(:secret AS bytea) || uuid_send(j.id)), 'hex') || CAST(:binding AS text), 'UTF8')), 'hex'), 32)"
)

GIVEN_QUEUES = """
        SELECT w.name, w.place
        FROM json_array_elements_text(CAST(:queues AS json)) WITH ORDINALITY AS w (name, place)"""
# No queues given means all of them. Their order is then drawn by lot: no queue may starve behind another's name.
_ALL_QUEUES = f"""
        SELECT seen.name, random() AS place FROM (
          WITH RECURSIVE seen (name) AS (
            (SELECT j.queue FROM holdfast_jobs j WHERE {_READY} ORDER BY j.queue LIMIT 1)
            UNION ALL
            SELECT further.queue FROM seen CROSS JOIN LATERAL (
              SELECT j.queue FROM holdfast_jobs j WHERE {_READY} AND j.queue > seen.name ORDER BY j.queue LIMIT 1
            ) further
          ) SELECT name FROM seen) seen"""

_QUEUE = "(SELECT names FROM open_queues)[level.place]"
# unnest, and not generate_series: the planner takes the latter for a thousand rows, and a statement that it takes to
# be that expensive is compiled (JIT) at every execution, for a hundred times the time that it takes to run.
_FURTHER_QUEUE = f"""
          SELECT CAST(further.place AS integer) + {{start}} - 1, top.priority
          FROM unnest((SELECT names FROM open_queues)[{{start}}:]) WITH ORDINALITY AS further (name, place)
          CROSS JOIN LATERAL (
            SELECT j.priority FROM holdfast_jobs j WHERE {_READY} AND j.queue = further.name
            ORDER BY j.priority DESC LIMIT 1) top
          ORDER BY further.place LIMIT 1"""


def walk_levels(queues: str, queue_admits: str, admitted: str = "") -> str:
    """CTEs: the queues that are open, and their priorities from the top, one after the other."""
    return f"""
        WITH RECURSIVE {admitted} open_queues AS MATERIALIZED (
          SELECT coalesce(array_agg(w.name ORDER BY w.place), '{{}}') AS names
          FROM ({queues}) w LEFT JOIN holdfast_queues q ON q.name = w.name
          WHERE q.paused_at IS NULL AND {queue_admits}),
        level (place, priority) AS (
          ({_FURTHER_QUEUE.format(start="1")})
          UNION ALL
          SELECT further.place, further.priority FROM level CROSS JOIN LATERAL (
            (SELECT level.place, j.priority FROM holdfast_jobs j
             WHERE {_READY} AND j.queue = {_QUEUE} AND j.priority < level.priority
             ORDER BY j.priority DESC LIMIT 1)
            UNION ALL
            ({_FURTHER_QUEUE.format(start="level.place + 1")})
            LIMIT 1) further)"""


def due_rows(lane_admits: str, lane_limit: str) -> str:
    """The due rows of one level: the head of each of its lanes that may be taken. Who names no task takes any but the
    engine's own: a worker in another language would not know what to do with it."""
    here = f"{_READY} AND j.queue = {_QUEUE} AND j.priority = level.priority"
    return f"""
              SELECT ready.tid, ready.run_after, ready.id, lane.source FROM (
                WITH RECURSIVE lane (task, source) AS (
                  (SELECT j.task, {_LANE} FROM holdfast_jobs j WHERE {here} ORDER BY j.task, {_LANE} LIMIT 1)
                  UNION ALL
                  SELECT further.task, further.source FROM lane CROSS JOIN LATERAL (
                    SELECT j.task, {_LANE} AS source FROM holdfast_jobs j
                    WHERE {here} AND (j.task, {_LANE}) > (lane.task, lane.source)
                    ORDER BY j.task, {_LANE} LIMIT 1) further
                ) SELECT task, source FROM lane) lane
              CROSS JOIN LATERAL (
                SELECT j.ctid AS tid, j.run_after, j.id FROM holdfast_jobs j
                WHERE {here} AND j.task = lane.task AND {_LANE} = lane.source
                  AND j.run_after <= (SELECT holdfast_now())
                ORDER BY j.run_after, j.id LIMIT {lane_limit}) ready
              WHERE (CAST(:tasks AS json) IS NULL AND lane.task <> '{DELIVERY_TASK}'
                     OR lane.task IN (SELECT value FROM json_array_elements_text(CAST(:tasks AS json))))
                AND {lane_admits}"""


_LOCK = f"""
          SELECT j.ctid AS tid FROM holdfast_jobs j
          WHERE j.ctid = ready.tid AND {_READY} FOR NO KEY UPDATE SKIP LOCKED"""


def _claim(words: Words, walk: str, candidates: str) -> str:
    return f"""{walk}
        UPDATE holdfast_jobs AS j {_take(words, _POSTGRES_DIGEST)}
        WHERE j.ctid = ANY (ARRAY(
          SELECT locked.tid FROM {candidates} CROSS JOIN LATERAL ({_LOCK}) locked LIMIT :limit))
        RETURNING {words.returning(*RETURNED)}"""


def _ungoverned(words: Words, queues: str) -> str:
    due = due_rows("NOT EXISTS (SELECT FROM holdfast_sources s WHERE s.name = lane.source)", ":window")
    candidates = f"level CROSS JOIN LATERAL ({due} ORDER BY ready.run_after, ready.id LIMIT :window) ready"
    return _claim(words, walk_levels(queues, "q.max_running IS NULL"), candidates)


# So many heads of a limited source or queue may be locked by somebody before its other jobs have to wait.
_SPARE = 16


def _allowance(table: str, name: str) -> str:
    return f"(SELECT o.allowance FROM {table} o WHERE o.name = {name})"


def _with_spare(table: str, name: str) -> str:
    return f"(SELECT o.allowance + {_SPARE} FROM {table} o WHERE o.name = {name})"


def _within_level() -> str:
    """A level's rows, not many more of a source or queue than it admits: what it may not have, others may."""
    lane_admits = """(NOT EXISTS (SELECT FROM holdfast_sources s WHERE s.name = lane.source)
                     OR EXISTS (SELECT FROM open_sources o WHERE o.name = lane.source))"""
    due = due_rows(lane_admits, f"least(:window, {_with_spare('open_sources', 'lane.source')})")
    return f"""
            SELECT numbered.tid, numbered.source, {_QUEUE} AS queue FROM (
              SELECT due.*, row_number() OVER (PARTITION BY source ORDER BY run_after, id) AS nth
              FROM ({due}) due) numbered
            WHERE coalesce(nth <= {_with_spare("open_sources", "numbered.source")}, true)
            ORDER BY numbered.run_after, numbered.id
            LIMIT least(:window, {_with_spare("limited_queues", _QUEUE)})"""


def _within_limits(rows: str, allowance: Callable[[str, str], str]) -> str:
    """No more of a source than it admits and, of what is left, no more of a queue."""
    return f"""
          SELECT by_queue.tid, by_queue.source, by_queue.queue, by_queue.position FROM (
            SELECT by_source.*, row_number() OVER (PARTITION BY queue ORDER BY position) AS in_queue FROM (
              SELECT numbered.*, row_number() OVER (PARTITION BY source ORDER BY position) AS in_source
              FROM {rows} numbered) by_source
            WHERE coalesce(in_source <= {allowance("open_sources", "by_source.source")}, true)) by_queue
          WHERE coalesce(in_queue <= {allowance("limited_queues", "by_queue.queue")}, true)"""


def _governed(words: Words, queues: str) -> str:
    """What is limited is locked first and counted exactly afterwards, so that a row which somebody has locked takes
    nobody's place. The spare rows that are locked with it are in nobody's way: we have their source or queue locked.
    """
    allowances = {"name": "text", "allowance": "integer"}
    admitted = f"""open_sources AS MATERIALIZED (SELECT * FROM {words.rows(allowances, "o", "sources")}),
        limited_queues AS MATERIALIZED (SELECT * FROM {words.rows(allowances, "o", "limited")}),"""
    walk = walk_levels(queues, "(q.max_running IS NULL OR q.name IN (SELECT name FROM limited_queues))", admitted)
    # A limit is shared by all levels of its source or queue, hence the second count over the candidates.
    numbered = f"""(
                SELECT ready.*, row_number() OVER () AS position
                FROM level CROSS JOIN LATERAL ({_within_level()}) ready LIMIT :window)"""
    walk += f""",
        candidate AS MATERIALIZED ({_within_limits(numbered, _with_spare)}),
        held AS MATERIALIZED (
          SELECT locked.tid, ready.source, ready.queue, ready.position
          FROM candidate ready CROSS JOIN LATERAL ({_LOCK}) locked
          WHERE ready.source IN (SELECT name FROM open_sources) OR ready.queue IN (SELECT name FROM limited_queues)),
        chosen AS MATERIALIZED (
          SELECT tid, position FROM ({_within_limits("held", _allowance)}) limited
          UNION ALL
          SELECT tid, position FROM candidate
          WHERE source NOT IN (SELECT name FROM open_sources) AND queue NOT IN (SELECT name FROM limited_queues))"""
    return _claim(words, walk, "(SELECT tid FROM chosen ORDER BY position) ready")


CLAIM = Statement("claim", lambda words: _ungoverned(words, GIVEN_QUEUES), replan=True)
CLAIM_ALL_QUEUES = Statement("claim.all_queues", lambda words: _ungoverned(words, _ALL_QUEUES), replan=True)
CLAIM_GOVERNED = Statement("claim.governed", lambda words: _governed(words, GIVEN_QUEUES), replan=True)
CLAIM_GOVERNED_ALL_QUEUES = Statement(
    "claim.governed.all_queues", lambda words: _governed(words, _ALL_QUEUES), replan=True
)


def _claim_rows(words: Words) -> str:
    """Claim exactly these jobs, if they are claimable and due: the end of SQLite's walk, and `claim_job` on both."""
    rows = words.rows({"id": "uuid", "digest": "text"})
    locked = f"""
          SELECT j.id, r.digest FROM holdfast_jobs j JOIN {rows} ON j.id = r.id
          WHERE {_READY} AND j.run_after <= {words.fixed_now}
            AND NOT EXISTS (SELECT 1 FROM holdfast_queues q WHERE q.name = j.queue AND q.paused_at IS NOT NULL)
          {words.skip_locked}"""
    return f"""
        WITH chosen AS MATERIALIZED ({locked})
        UPDATE holdfast_jobs AS j {_take(words, "chosen.digest")}
        FROM chosen WHERE j.id = chosen.id
        RETURNING {words.returning(*RETURNED)}"""


CLAIM_ROWS = Statement("claim.rows", _claim_rows)


def _held(words: Words, which: str) -> str:
    columns = ", ".join(f"j.{name}" for name in (*RETURNED, "lease_token"))
    return f"""
        SELECT {words.as_text("j.id")}, {columns} FROM holdfast_jobs j
        WHERE j.state = 'running' AND {which}"""


HELD = Statement("claim.held", lambda words: _held(words, "j.lease_owner = :worker"))
HELD_JOBS = Statement("claim.held_jobs", lambda words: _held(words, f"j.id {words.is_one_of()}"))


# The walk on SQLite. `state IN (…)` stands in each as the partial index has it, or SQLite would not use it.
def _sqlite(name: str, sql: str) -> Statement:
    return Statement(f"claim.sqlite.{name}", lambda _words: sql)


NEXT_QUEUE = _sqlite(
    "next_queue",
    f"SELECT queue FROM holdfast_jobs WHERE {CLAIMABLE_SQL} AND queue > :queue ORDER BY queue LIMIT 1",
)
NEXT_PRIORITY = _sqlite(
    "next_priority",
    f"SELECT priority FROM holdfast_jobs WHERE {CLAIMABLE_SQL} AND queue = :queue AND priority < :below"
    " ORDER BY priority DESC LIMIT 1",
)
NEXT_TASK = _sqlite(
    "next_task",
    f"SELECT task FROM holdfast_jobs WHERE {CLAIMABLE_SQL} AND queue = :queue AND priority = :priority"
    " AND task > :task ORDER BY task LIMIT 1",
)
NEXT_SOURCE = _sqlite(
    "next_source",
    f"SELECT {SOURCE_LANE} FROM holdfast_jobs WHERE {CLAIMABLE_SQL} AND queue = :queue AND priority = :priority"
    f" AND task = :task AND {SOURCE_LANE} > :source ORDER BY {SOURCE_LANE} LIMIT 1",
)
FIRST_SOURCE = _sqlite(
    "first_source",
    f"SELECT {SOURCE_LANE} FROM holdfast_jobs WHERE {CLAIMABLE_SQL} AND queue = :queue AND priority = :priority"
    f" AND task = :task ORDER BY {SOURCE_LANE} LIMIT 1",
)
LANE_HEAD = _sqlite(
    "lane_head",
    f"SELECT run_after, id, {SOURCE_LANE} FROM holdfast_jobs WHERE {CLAIMABLE_SQL} AND queue = :queue"
    f" AND priority = :priority AND task = :task AND {SOURCE_LANE} = :source AND run_after <= :now"
    " ORDER BY run_after, id LIMIT :limit",
)
