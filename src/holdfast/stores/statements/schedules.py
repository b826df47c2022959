"""Schedules and their ticks.

A schedule that is due is advanced by compare-and-set: on its name, on the instant that was read, on its revision
(raised by every change that an operator or a declaration makes) and on its not being paused. Whoever wins inserts the
ticks, and their jobs, in the same transaction.

Times and JSON are read as text: a driver that cannot make a value of one of them (infinity, a year of five digits)
would give none of the rows.
"""

from __future__ import annotations

from holdfast.domain.schedule import CLOCK_SLACK_SECONDS
from holdfast.stores.statements.words import Statement, Words

COLUMNS = {
    "name": "text",
    "task": "text",
    "job": "json",
    "cron": "text",
    "every_seconds": "float8",
    "anchor_at": "timestamptz",
    "timezone": "text",
    "misfire": "text",
    "misfire_limit": "integer",
    "misfire_grace_seconds": "float8",
    "tick_argument": "text",
    "declared": "json",
    "declared_at": "timestamptz",
    "overrides": "json",
    "paused_at": "timestamptz",
    "next_at": "timestamptz",
    "last_at": "timestamptz",
    "revision": "integer",
    "created_at": "timestamptz",
    "updated_at": "timestamptz",
}
TICK_COLUMNS = ("schedule", "planned_at", "fired_at", "outcome", "job_id", "holder", "detail")

_TICK_ROWS = {"planned_at": "timestamptz", "outcome": "text", "detail": "json"}
_JOB_ROWS = {"planned_at": "timestamptz", "outcome": "text", "job_id": "uuid"}


def _value(words: Words, name: str, kind: str) -> str:
    return f"CAST(:{name} AS {kind})" if words.postgres else f":{name}"


def _time_text(words: Words, column: str) -> str:
    # By way of JSON, whose form of a time is the same whatever the session's DateStyle.
    return f"to_json({column}) #>> '{{}}'" if words.postgres else column


def _column(words: Words, column: str, kind: str) -> str:
    if kind == "timestamptz":
        return _time_text(words, column)
    return words.as_text(column) if kind == "json" else column


def _columns(words: Words, alias: str) -> str:
    return ", ".join(_column(words, f"{alias}.{name}", kind) for name, kind in COLUMNS.items())


def _is_no_time(words: Words, column: str) -> str:
    return f"NOT isfinite({column})" if words.postgres else f"julianday({column}) IS NULL"


def _held(words: Words, condition: str) -> str:
    """One schedule, locked; none if somebody else has it locked."""
    return f"SELECT j.name FROM holdfast_schedules j WHERE j.name = :name AND {condition} {words.skip_locked}"


def _all(words: Words) -> str:
    name = _value(words, "name", "text")
    return f"""
        SELECT {_columns(words, "s")} FROM holdfast_schedules s
        WHERE {name} IS NULL OR s.name = {name} ORDER BY s.name"""


def _locked(words: Words) -> str:
    return f"SELECT {_columns(words, 'j')} FROM holdfast_schedules j WHERE j.name = :name {words.skip_locked}"


def _insert(words: Words) -> str:
    values = ", ".join(_value(words, name, kind) for name, kind in COLUMNS.items())
    return f"""
        INSERT INTO holdfast_schedules ({", ".join(COLUMNS)}) VALUES ({values})
        ON CONFLICT (name) DO NOTHING RETURNING name"""


def _change(words: Words) -> str:
    """All of a row that was locked before."""
    kept = ("name", "revision", "created_at", "updated_at")
    changes = ", ".join(f"{name} = {_value(words, name, kind)}" for name, kind in COLUMNS.items() if name not in kept)
    return f"""
        UPDATE holdfast_schedules SET {changes}, revision = revision + 1, updated_at = {words.now}
        WHERE name = :name"""


def _remove(words: Words) -> str:
    held = _held(words, "true")
    return f"DELETE FROM holdfast_schedules WHERE name IN ({held}) RETURNING {words.as_text('declared')}"


def _touch(words: Words) -> str:
    """Only where code still says what is stored. Every worker does this; one of them in half a minute is enough."""
    rows = words.rows({"name": "text", "declared": "text"})
    return f"""
        WITH held AS MATERIALIZED (
          SELECT j.name FROM holdfast_schedules j
          WHERE EXISTS (SELECT 1 FROM {rows} WHERE r.name = j.name AND r.declared = {words.as_text("j.declared")})
            AND j.declared_at < {words.after("-30")}
          {words.skip_locked})
        UPDATE holdfast_schedules AS s SET declared_at = {words.now}
        FROM held WHERE s.name = held.name"""


def _due(words: Words) -> str:
    """Those that are due, page by page, with the one clock that says so and the earliest instant of the others. One
    row without a name when none is due.

    Also those that would never be: whose next instant is no time, and those that were written by a clock that was
    ahead, which may have put their next instant anywhere.
    """
    earliest = "(SELECT min(f.next_at) FROM holdfast_schedules f WHERE f.paused_at IS NULL AND f.next_at > c.now)"
    return f"""
        WITH clock AS MATERIALIZED (SELECT {words.now} AS now, {words.after(str(CLOCK_SLACK_SECONDS))} AS ahead)
        SELECT c.now, {_time_text(words, earliest)}, {_columns(words, "s")}
        FROM clock c LEFT JOIN holdfast_schedules s
          ON s.paused_at IS NULL AND s.next_at IS NOT NULL
         AND (s.next_at <= c.now OR s.updated_at > c.ahead OR s.last_at > c.ahead OR {_is_no_time(words, "s.next_at")})
         AND (s.next_at, s.name) > ({_value(words, "after_at", "timestamptz")}, {_value(words, "after_name", "text")})
        ORDER BY s.next_at, s.name LIMIT :page"""


def _advance(words: Words) -> str:
    """That a clock was ahead is tested again: who slept between the look and this saw the future of a stale clock."""
    ahead = words.after(str(CLOCK_SLACK_SECONDS))
    unchanged = (
        f"j.next_at = {_value(words, 'read_at', 'timestamptz')} AND j.revision = :revision AND j.paused_at IS NULL"
        f" AND ({_value(words, 'was_ahead', 'integer')} = 0 OR j.updated_at > {ahead} OR j.last_at > {ahead})"
    )
    return f"""
        WITH held AS MATERIALIZED ({_held(words, unchanged)})
        UPDATE holdfast_schedules AS s
        SET next_at = {_value(words, "next_at", "timestamptz")},
            last_at = {_value(words, "last_at", "timestamptz")},
            updated_at = {words.now}
        FROM held WHERE s.name = held.name
        RETURNING {"s.name" if words.postgres else "name"}"""


def _insert_ticks(words: Words) -> str:
    return f"""
        INSERT INTO holdfast_schedule_ticks (schedule, planned_at, fired_at, outcome, holder, detail)
        SELECT {_value(words, "name", "text")}, r.planned_at, {_value(words, "fired_at", "timestamptz")}, r.outcome,
               {_value(words, "holder", "text")}, r.detail
        FROM {words.rows(_TICK_ROWS)} {words.true_filter}
        ORDER BY r.planned_at
        ON CONFLICT (schedule, planned_at) DO NOTHING
        RETURNING planned_at"""


def _record_jobs(words: Words) -> str:
    return f"""
        UPDATE holdfast_schedule_ticks AS t SET outcome = r.outcome, job_id = r.job_id
        FROM {words.rows(_JOB_ROWS)}
        WHERE t.schedule = :name AND t.planned_at = r.planned_at"""


def _ticks(words: Words) -> str:
    columns = ", ".join(words.as_text(name) if name == "job_id" else name for name in TICK_COLUMNS)
    return f"""
        SELECT {columns} FROM holdfast_schedule_ticks
        WHERE schedule = :name ORDER BY planned_at DESC LIMIT :limit"""


def _declared(words: Words) -> str:
    return f"SELECT s.name, {words.as_text('s.declared')} FROM holdfast_schedules s"


ALL = Statement("schedules.all", _all)
NOW = Statement("schedules.now", lambda words: f"SELECT {words.now}")
DECLARED = Statement("schedules.declared", _declared)
LOCKED = Statement("schedules.locked", _locked)
PRESENT = Statement("schedules.present", lambda _words: "SELECT 1 FROM holdfast_schedules WHERE name = :name")
INSERT = Statement("schedules.insert", _insert)
CHANGE = Statement("schedules.change", _change)
REMOVE = Statement("schedules.remove", _remove)
TOUCH = Statement("schedules.touch", _touch)
DUE = Statement("schedules.due", _due)
ADVANCE = Statement("schedules.advance", _advance)
INSERT_TICKS = Statement("schedules.insert_ticks", _insert_ticks)
# Of Postgres alone: how long a unique key is waited for that somebody else is just taking.
PATIENCE = Statement("schedules.patience", lambda _words: "SET LOCAL lock_timeout = '500ms'")
RECORD_JOBS = Statement("schedules.record_jobs", _record_jobs)
TICKS = Statement("schedules.ticks", _ticks)
