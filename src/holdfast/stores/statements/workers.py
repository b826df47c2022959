"""The rows of workers, for people to look at. The first write sets when it started, every write when it was alive."""

from __future__ import annotations

from holdfast.stores.statements.words import Statement, Words

COLUMNS = {
    "id": "text",
    "host": "text",
    "pid": "integer",
    "state": "text",
    "app": "text",
    "queues": "json",
    "processes": "integer",
    "slots": "integer",
    "running": "integer",
    "version": "text",
    "detail": "json",
}
VIEWED = (*COLUMNS, "started_at", "beat_at", "stopped_at")


# In `detail`: whose row it is, where the worker came over HTTP. Nobody is shown it.
CREDENTIAL = "holdfast.credential"


def _keep(words: Words) -> str:
    changes = ", ".join(f"{name} = excluded.{name}" for name in COLUMNS if name != "id")
    return f"""
        INSERT INTO holdfast_workers AS w ({", ".join(COLUMNS)}, started_at, beat_at, stopped_at)
        SELECT {", ".join(f"r.{name}" for name in COLUMNS)}, {words.now}, {words.now},
               CASE WHEN r.state = 'stopped' THEN {words.now} END
        FROM {words.rows(COLUMNS)} {words.true_filter}
        ON CONFLICT (id) DO UPDATE SET {changes}, beat_at = excluded.beat_at,
            stopped_at = CASE WHEN excluded.state = 'stopped' THEN coalesce(w.stopped_at, excluded.stopped_at) END"""


def _keep_own(words: Words) -> str:
    path = f"'{CREDENTIAL}'" if words.postgres else f"""'$."{CREDENTIAL}"'"""
    return f"{_keep(words)} WHERE w.detail ->> {path} = excluded.detail ->> {path} RETURNING id"


def _forget(words: Words) -> str:
    age = "CAST(:age AS float8)" if words.postgres else ":age"
    return f"DELETE FROM holdfast_workers WHERE beat_at < {words.after(f'-{age}')} RETURNING id"


def _workers(_words: Words) -> str:
    return f"""
        SELECT {", ".join(VIEWED)} FROM holdfast_workers
        ORDER BY CASE WHEN stopped_at IS NULL THEN 0 ELSE 1 END, id"""


KEEP = Statement("workers.keep", _keep)
KEEP_OWN = Statement("workers.keep_own", _keep_own)
FORGET = Statement("workers.forget", _forget)
WORKERS = Statement("workers.list", _workers)
