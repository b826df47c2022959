"""Insert jobs; find the jobs that stand in for those that were not inserted.

One time for the whole statement: a batch stays in the caller's order (by id) whatever order it is inserted in.
"""

from __future__ import annotations

from functools import cache

from holdfast.domain.job import DEFAULT_LEASE_SECONDS, DEFAULT_QUEUE
from holdfast.domain.lifecycle import ACTIVE
from holdfast.stores.schema import in_states
from holdfast.stores.statements.retention import RETIRED_IDS_KEY
from holdfast.stores.statements.words import Statement, Words

COLUMNS = {
    "id": "uuid",
    "task": "text",
    "task_version": "text",
    "queue": "text",
    "priority": "integer",
    "payload": "json",
    "spec_hash": "text",
    "unique_key": "text",
    "source": "text",
    "max_attempts": "integer",
    "max_crashes": "integer",
    "retry": "json",
    "timeout_seconds": "float8",
    "lease_seconds": "float8",
    "traceparent": "text",
    "replay_of": "uuid",
    "webhook": "json",
}
# The kinds of rows of `KNOWN_IDS`.
ID_OF_JOB, ID_OF_PRUNED, ID_OF_RETIRED, RETIRED_THROUGH = "job", "pruned", "retired", "retired_through"
_TIMING = {"run_after": "timestamptz", "delay": "float8"}


def _insert(words: Words) -> str:
    names = ", ".join(COLUMNS)
    picked = ", ".join(f"r.{name}" for name in COLUMNS)
    rows = words.rows({**COLUMNS, **_TIMING})
    due = f"coalesce(r.run_after, {words.after('coalesce(r.delay, 0)', words.fixed_now)})"
    if not words.postgres:
        # Most jobs are due at once: spare them the date arithmetic and keep the full precision of the clock.
        due = f"coalesce(r.run_after, CASE WHEN r.delay > 0 THEN {words.after('r.delay')} ELSE :now END)"
    # On SQLite a trigger refuses what is taken (it could be a REPLACE), so what is taken is left out beforehand; nobody
    # else can write in between.
    free = (
        ""
        if words.postgres
        else f"""
        WHERE NOT EXISTS (SELECT 1 FROM holdfast_jobs j WHERE j.id = r.id)
          AND (r.unique_key IS NULL OR NOT EXISTS (
            SELECT 1 FROM holdfast_jobs j WHERE j.task = r.task AND j.unique_key = r.unique_key
              AND {in_states(ACTIVE, "j.state")}))"""
    )
    return f"""
        INSERT INTO holdfast_jobs ({names}, run_after, created_at, updated_at)
        SELECT {picked}, {due}, {words.fixed_now}, {words.fixed_now} FROM {rows} {free}
        ON CONFLICT DO NOTHING
        RETURNING {words.as_text("id")}"""


def _existing(words: Words) -> str:
    rows = words.rows({"position": "integer", "id": "uuid", "task": "text", "unique_key": "text"})
    return f"""
        SELECT r.position, {words.as_text("j.id")}, j.state, j.task, j.spec_hash
        FROM {rows} JOIN holdfast_jobs j ON j.id = r.id
        UNION ALL
        SELECT r.position, {words.as_text("j.id")}, j.state, j.task, j.spec_hash
        FROM {rows} JOIN holdfast_jobs j
          ON j.task = r.task AND j.unique_key = r.unique_key AND {in_states(ACTIVE, "j.state")}"""


def _reusable(words: Words) -> str:
    rows = words.rows({"position": "integer", "spec_hash": "text", "seconds": "float8"})
    return f"""
        SELECT r.position, {words.as_text("j.id")}, j.finished_at
        FROM {rows} JOIN holdfast_jobs j
          ON j.spec_hash = r.spec_hash AND j.state = 'succeeded'
         AND j.finished_at > {words.after("-r.seconds", words.fixed_now)}
        ORDER BY j.finished_at"""


def _pruned(words: Words) -> str:
    return f"""
        SELECT {words.as_text("e.job_id")} FROM holdfast_events e
        WHERE e.job_id {words.is_one_of()} AND e.event = 'pruned'"""


def _known_ids(words: Words) -> str:
    """What is stored about these ids: job, pruned history, retired history; and the newest id retired by age."""
    return f"""
        SELECT '{ID_OF_JOB}', {words.as_text("j.id")}, j.task, j.spec_hash FROM holdfast_jobs j
        WHERE j.id {words.is_one_of()}
        UNION ALL
        SELECT '{ID_OF_PRUNED}', {words.as_text("e.job_id")}, NULL, NULL FROM holdfast_events e
        WHERE e.job_id {words.is_one_of()} AND e.event = 'pruned'
        UNION ALL
        SELECT '{ID_OF_RETIRED}', {words.as_text("r.job_id")}, NULL, NULL FROM holdfast_retired_histories r
        WHERE r.job_id {words.is_one_of()}
        UNION ALL
        SELECT '{RETIRED_THROUGH}', m.value, NULL, NULL FROM holdfast_meta m WHERE m.key = '{RETIRED_IDS_KEY}'"""


def _queues(words: Words) -> str:
    """Of the jobs that stand in for others: whoever enqueued may not be allowed to know of them."""
    return f"SELECT {words.as_text('j.id')}, j.queue FROM holdfast_jobs j WHERE j.id {words.is_one_of()}"


QUEUES = Statement("enqueue.queues", _queues)
PRUNED = Statement("enqueue.pruned", _pruned)
KNOWN_IDS = Statement("enqueue.known_ids", _known_ids)
INSERT = Statement("enqueue.insert", _insert)
EXISTING = Statement("enqueue.existing", _existing)
SAVEPOINT = Statement("enqueue.savepoint", lambda _words: "SAVEPOINT holdfast_enqueue")
ROLLBACK_TO_SAVEPOINT = Statement("enqueue.rollback", lambda _words: "ROLLBACK TO SAVEPOINT holdfast_enqueue")
RELEASE_SAVEPOINT = Statement("enqueue.release", lambda _words: "RELEASE SAVEPOINT holdfast_enqueue")
REUSABLE = Statement("enqueue.reusable", _reusable)
# What a plain job has of its own, and what many have in common.
OWN_COLUMNS = ("id", "payload", "spec_hash")
COMMON_COLUMNS = tuple(name for name in COLUMNS if name not in (*OWN_COLUMNS, "unique_key", "replay_of"))
# The table would say these by itself, by a function that may answer differently each time; then COPY inserts row by
# row and not by the page.
TIMES = ("run_after", "created_at", "updated_at")
NOW = Statement("enqueue.now", lambda words: f"SELECT CAST({words.now} AS text)")
# What the table says by itself.
DEFAULTS = {
    "queue": DEFAULT_QUEUE,
    "priority": 0,
    "max_attempts": 3,
    "max_crashes": 3,
    "lease_seconds": DEFAULT_LEASE_SECONDS,
}


@cache
def copy(columns: tuple[str, ...]) -> str:
    """For Postgres: plain jobs, of which only these columns are given."""
    return f"COPY holdfast_jobs ({', '.join(columns)}) FROM STDIN"


@cache
def insert_one(columns: tuple[str, ...]) -> Statement:
    """For Postgres: one plain job, of which only these columns are given."""
    given = ", ".join(f"CAST(:{name} AS {COLUMNS[name]})" for name in columns)
    return Statement(
        f"enqueue.insert_one.{','.join(columns)}",
        lambda _words: f"INSERT INTO holdfast_jobs ({', '.join(columns)}) VALUES ({given})",
    )
