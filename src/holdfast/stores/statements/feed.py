"""Follow the audit log by time, through the index `holdfast_events_at`; and one job's part of it, page by page."""

from __future__ import annotations

from holdfast.stores.statements.queries import EVENT_COLUMNS
from holdfast.stores.statements.words import Statement, Words

# Without the detail: an error's stack is not for everybody who watches.
COLUMNS = ("job_id", "seq", "at", "event", "from_state", "to_state", "attempt", "worker", "task", "queue")


def _now(words: Words) -> str:
    return f"SELECT {words.now}"


def known_columns(words: Words) -> list[str]:
    """Task and queue of the job `j`. What was pruned says itself what it was."""
    said = "e.detail ->> '{}'" if words.postgres else "json_extract(e.detail, '$.{}')"
    return [
        f"coalesce(j.{name}, CASE WHEN e.event = 'pruned' THEN {said.format(name)} END)" for name in ("task", "queue")
    ]


def own_columns(words: Words) -> str:
    """Of the event `e`: all but those of its job."""
    return ", ".join(words.as_text(f"e.{name}") if name == "job_id" else f"e.{name}" for name in COLUMNS[:-2])


def _after(words: Words) -> str:
    """The page is cut before jobs are looked up."""
    at = words.moment("at")
    known = ", ".join(known_columns(words))
    return f"""
        SELECT {own_columns(words)}, {known} FROM (
          SELECT e.* FROM holdfast_events e
          WHERE e.at >= {at} AND (e.at, e.job_id, e.seq) > ({at}, {words.id("job_id")}, :seq)
          ORDER BY e.at, e.job_id, e.seq LIMIT :limit) e
        LEFT JOIN holdfast_jobs j ON j.id = e.job_id
        ORDER BY e.at, e.job_id, e.seq"""


def _of_job(words: Words) -> str:
    picked = ", ".join(words.as_text(f"e.{name}") if name == "job_id" else f"e.{name}" for name in EVENT_COLUMNS)
    return f"""
        SELECT {picked} FROM holdfast_events e
        WHERE e.job_id = {words.id()} AND e.seq > :after ORDER BY e.seq LIMIT :limit"""


NOW = Statement("feed.now", _now)
AFTER = Statement("feed.after", _after, replan=True)
OF_JOB = Statement("feed.of_job", _of_job)
