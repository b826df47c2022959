"""The breaker of a source: read it, lock it, write it; and the record of what happened to a source.

Nobody waits for a source's row: it is asked for with SKIP LOCKED, one name after the other in their order, and again a
few milliseconds later. Whoever has one therefore only ever waits for names behind it.
"""

from __future__ import annotations

from holdfast.stores.statements.sources import readable
from holdfast.stores.statements.words import Statement, Words

COLUMNS = (
    "failure_streak",
    "paused_until",
    "paused_by",
    "last_success_at",
    "last_failure_at",
    "breaker_threshold",
    "breaker_pause_seconds",
    "breaker_only",
    "breaker_ignores",
    "breaker_counts_permanent",
)
_TIMES = ("paused_until", "last_success_at", "last_failure_at")


def _columns(words: Words) -> str:
    columns = (readable(words, f"s.{column}") if column in _TIMES else f"s.{column}" for column in COLUMNS)
    return f"{', '.join(columns)}, {words.now}"


def _read(words: Words) -> str:
    names = words.texts("names")
    return f"""
        SELECT s.name, {_columns(words)} FROM holdfast_sources s
        WHERE s.name IN (SELECT value FROM {names})"""


def _lock(words: Words) -> str:
    lock = "FOR NO KEY UPDATE OF s SKIP LOCKED" if words.postgres else ""
    return f"SELECT s.name, {_columns(words)} FROM holdfast_sources s WHERE s.name = :name {lock}"


def _write(words: Words) -> str:
    def given(name: str, kind: str) -> str:
        return f"CAST(:{name} AS {kind})" if words.postgres else f":{name}"

    return f"""
        UPDATE holdfast_sources
        SET failure_streak = :failure_streak,
            paused_until = {given("paused_until", "timestamptz")}, paused_by = {given("paused_by", "text")},
            last_success_at = {given("last_success_at", "timestamptz")},
            last_failure_at = {given("last_failure_at", "timestamptz")}, updated_at = {words.now}
        WHERE name = :name"""


def _record(words: Words) -> str:
    """The id is made in Python: those of one transaction are in order."""
    detail = "CAST(:detail AS json)" if words.postgres else ":detail"
    new_id = words.id()
    return f"""
        INSERT INTO holdfast_source_events (id, source, at, event, detail)
        VALUES ({new_id}, :source, {words.now}, :event, {detail})"""


READ = Statement("breaker.read", _read)
LOCK = Statement("breaker.lock", _lock)
WRITE = Statement("breaker.write", _write)
RECORD = Statement("breaker.record", _record)
