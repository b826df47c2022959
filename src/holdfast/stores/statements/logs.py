"""What jobs said. A line that is sent twice is stored once: its number is part of its key."""

from __future__ import annotations

from holdfast.stores.statements.words import Statement, Words

COLUMNS = {
    "job_id": "uuid",
    "attempt": "integer",
    "number": "integer",
    "at": "timestamptz",
    "stream": "text",
    "level": "text",
    "message": "text",
    "fields": "json",
}


def _append(words: Words) -> str:
    return f"""
        INSERT INTO holdfast_logs ({", ".join(COLUMNS)})
        SELECT {", ".join(f"r.{name}" for name in COLUMNS)} FROM {words.rows(COLUMNS)} {words.true_filter}
        ORDER BY r.job_id, r.attempt, r.number
        ON CONFLICT DO NOTHING"""


def _lines(words: Words) -> str:
    job_id = words.id()
    attempt = "CAST(:attempt AS integer)"
    picked = ", ".join(words.as_text(f"l.{name}") if name == "job_id" else f"l.{name}" for name in COLUMNS)
    return f"""
        SELECT {picked} FROM holdfast_logs l
        WHERE l.job_id = {job_id} AND ({attempt} IS NULL OR l.attempt = {attempt})
          AND (l.attempt, l.number) > (:after_attempt, :after_number)
        ORDER BY l.attempt, l.number LIMIT :limit"""


def _last(words: Words) -> str:
    """The newest first."""
    job_id = words.id()
    picked = ", ".join(words.as_text(f"l.{name}") if name == "job_id" else f"l.{name}" for name in COLUMNS)
    return f"""
        SELECT {picked} FROM holdfast_logs l WHERE l.job_id = {job_id}
        ORDER BY l.attempt DESC, l.number DESC LIMIT :limit"""


def _count(words: Words) -> str:
    job_id = words.id()
    return f"SELECT count(*) FROM holdfast_logs l WHERE l.job_id = {job_id}"


APPEND = Statement("logs.append", _append)
LINES = Statement("logs.lines", _lines)
LAST = Statement("logs.last", _last)
COUNT = Statement("logs.count", _count)
