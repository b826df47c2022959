"""Files that attempts saved, as rows; and the store's own name in the places where files are kept.

`LIVE` is one statement, so that it sees one moment: an attempt is still running, or it has been settled and its files
are on record. Never is it neither while its report may yet be accepted.
"""

from __future__ import annotations

from holdfast.domain.lifecycle import State
from holdfast.stores.schema import still_in
from holdfast.stores.statements.words import Statement, Words

ROW = {
    "job_id": "uuid",
    "attempt": "integer",
    "name": "text",
    "media_type": "text",
    "bytes": "bigint",
    "sha256": "text",
}
COLUMNS = (*ROW, "saved_at")


def _record(words: Words) -> str:
    return f"""
        INSERT INTO holdfast_artifacts ({", ".join(ROW)}, saved_at)
        SELECT {", ".join(f"r.{name}" for name in ROW)}, {words.now} FROM {words.rows(ROW)} {words.true_filter}
        ORDER BY r.job_id, r.attempt, r.name
        ON CONFLICT DO NOTHING"""


def _of_job(words: Words) -> str:
    job_id = words.id()
    picked = ", ".join(words.as_text(f"a.{name}") if name == "job_id" else f"a.{name}" for name in COLUMNS)
    return f"""
        SELECT {picked} FROM holdfast_artifacts a WHERE a.job_id = {job_id} ORDER BY a.attempt, a.name"""


def _live(words: Words) -> str:
    saved_id, job_id = words.as_text("a.job_id"), words.as_text("j.id")
    return f"""
        SELECT 'saved', {saved_id}, a.attempt, a.name
        FROM holdfast_artifacts a JOIN holdfast_jobs j ON j.id = a.job_id WHERE a.job_id {words.is_one_of()}
        UNION ALL
        SELECT 'result', {job_id}, j.attempt, j.result_ref
        FROM holdfast_jobs j WHERE j.id {words.is_one_of()} AND j.result_ref IS NOT NULL
        UNION ALL
        SELECT 'running', {job_id}, j.attempt, NULL
        FROM holdfast_jobs j WHERE j.id {words.is_one_of()} AND {still_in(State.RUNNING)}"""


RECORD = Statement("artifacts.record", _record)
OF_JOB = Statement("artifacts.of_job", _of_job)
LIVE = Statement("artifacts.live", _live)
STORE_ID = Statement("artifacts.store_id", lambda _words: "SELECT value FROM holdfast_meta WHERE key = 'store_id'")
NAME_STORE = Statement(
    "artifacts.name_store",
    lambda _words: "INSERT INTO holdfast_meta (key, value) VALUES ('store_id', :id) ON CONFLICT DO NOTHING",
)
