"""Sources: their limits, how they are, and the record of what happened to them."""

from __future__ import annotations

from functools import cache

from holdfast.domain.lifecycle import CLAIMABLE
from holdfast.domain.sources import EARLIEST, LATEST
from holdfast.stores.schema import CLAIMABLE_SQL, in_states
from holdfast.stores.statements.admission import in_use, seconds_between
from holdfast.stores.statements.words import Statement, Words
from holdfast.stores.types import to_text

# What may be set, and of which type it is.
LIMITS = {
    "enabled": "boolean",
    "rate_limit_per_minute": "float8",
    "burst": "integer",
    "max_concurrent": "integer",
    "paused_until": "timestamptz",
    "breaker_threshold": "integer",
    "breaker_pause_seconds": "float8",
    "breaker_only": "json",
    "breaker_ignores": "json",
    "breaker_counts_permanent": "boolean",
}
_ENDINGS = ("last_success_at", "last_failure_at")
# What may be written beside them.
_KINDS = {
    **LIMITS,
    "paused_by": "text",
    "declared": "json",
    "failure_streak": "integer",
    "bucket_level": "float8",
    **dict.fromkeys(_ENDINGS, "timestamptz"),
}

STANDING = (*LIMITS, "paused_by", "failure_streak", *_ENDINGS, "bucket_level", "declared")


def _columns(words: Words) -> str:
    times = ("paused_until", *_ENDINGS)
    return ", ".join(readable(words, f"s.{column}") if column in times else f"s.{column}" for column in STANDING)


def readable(words: Words, column: str) -> str:
    """A time that every driver can read: infinity is the latest there is. No constraint lets it in; but an outcome must
    not hang on that one being there."""
    if not words.postgres:
        return column
    low, high = (f"CAST('{to_text(moment)}' AS timestamptz)" for moment in (EARLIEST, LATEST))
    return f"(CASE WHEN {column} > {high} THEN {high} WHEN {column} < {low} THEN {low} ELSE {column} END)"


def elapsed(words: Words) -> str:
    """Seconds since the bucket's level was written."""
    return seconds_between(words, readable(words, "s.bucket_at"), words.fixed_now)


SOME_LIMIT_EXISTS = """
        EXISTS (SELECT 1 FROM holdfast_sources)
            OR EXISTS (SELECT 1 FROM holdfast_queues WHERE max_running IS NOT NULL)"""


def _create(words: Words) -> str:
    return f"""
        INSERT INTO holdfast_sources (name, bucket_at, created_at, updated_at)
        VALUES (:name, {words.now}, {words.now}, {words.now}) ON CONFLICT (name) DO NOTHING
        RETURNING name"""


def _standing(words: Words, which: str, lock: str) -> str:
    return f"""
        SELECT s.name, {_columns(words)}, {elapsed(words)}, {words.now}
        FROM holdfast_sources s {which} {lock if words.postgres else ""}"""


@cache
def change(names: tuple[str, ...]) -> Statement:
    """An update of just these columns."""

    def build(words: Words) -> str:
        given = {name: f"CAST(:{name} AS {_KINDS[name]})" if words.postgres else f":{name}" for name in names}
        bucket = f", bucket_at = {words.now}" if "bucket_level" in names else ""
        changes = ", ".join(f"{name} = {value}" for name, value in given.items())
        return f"UPDATE holdfast_sources SET {changes}{bucket}, updated_at = {words.now} WHERE name = :name"

    return Statement(f"sources.change.{'.'.join(names)}", build)


def _views(words: Words, which: str) -> str:
    """With how many jobs wait, up to a bound."""
    due, waiting, counted = _waiting(words)
    return f"""
        {due} SELECT s.name, {_columns(words)}, {elapsed(words)}, {words.now}, {in_use("s.name")}, {waiting}
        FROM holdfast_sources s {counted} {which} ORDER BY s.name"""


def _waiting(words: Words) -> tuple[str, str, str]:
    """What goes before, into and behind the SELECT to have the waiting jobs of source `s`. On Postgres an index has
    them by source, and is read no further than the bound; on SQLite all that is due is counted once."""
    if words.postgres:
        due = f"""
               (SELECT count(*) FROM (
                  SELECT 1 FROM holdfast_jobs j
                  WHERE j.source IS NOT NULL AND j.source = s.name AND {in_states(CLAIMABLE, "j.state")}
                    AND j.run_after <= {words.fixed_now} LIMIT :most) due)"""
        return "", due, ""
    due = f"""
        WITH due (source, jobs) AS MATERIALIZED (
          SELECT coalesce(source, ''), count(*) FROM holdfast_jobs INDEXED BY holdfast_jobs_ready
          WHERE {CLAIMABLE_SQL} AND run_after <= :now GROUP BY 1)"""
    return due, "min(coalesce(due.jobs, 0), :most)", "LEFT JOIN due ON due.source = s.name"


def _events(words: Words, which: str) -> str:
    before = words.id("before")
    return f"""
        SELECT {words.as_text("id")}, source, at, event, detail FROM holdfast_source_events
        WHERE {which} id < {before} ORDER BY id DESC LIMIT :limit"""


_ONE = "WHERE s.name = :name"

LIMITS_EXIST = Statement("sources.limits_exist", lambda _words: f"SELECT {SOME_LIMIT_EXISTS}")
CREATE = Statement("sources.create", _create)
EXISTS = Statement("sources.exists", lambda _words: "SELECT 1 FROM holdfast_sources WHERE name = :name")
LOCK = Statement("sources.lock", lambda words: _standing(words, _ONE, "FOR NO KEY UPDATE OF s"))
DECLARED = Statement("sources.declared", lambda _words: "SELECT name, declared FROM holdfast_sources")
VIEWS = Statement("sources.views", lambda words: _views(words, ""), replan=True)
VIEW = Statement("sources.view", lambda words: _views(words, _ONE), replan=True)
EVENTS = Statement("sources.events", lambda words: _events(words, ""))
EVENTS_OF = Statement("sources.events_of", lambda words: _events(words, "source = :source AND"))
