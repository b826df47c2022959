"""Jobs to drain, and real workers that drain them."""

from __future__ import annotations

import os
import subprocess
import sys
import tempfile
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from datetime import datetime
from pathlib import Path

from sqlalchemy import func, select

from benchmarks.databases import settle_down
from holdfast.domain.job import NewJob
from holdfast.stores.schema import jobs
from holdfast.stores.sql_store import SqlStore

QUEUE, TASK = "default", "noop"
APP = f"from holdfast import App\napp = App()\n\n@app.task(name={TASK!r})\ndef noop(**_payload) -> None:\n    pass\n"
CHUNK = 1_000


def enqueue(store: SqlStore, count: int, payload: dict[str, object] | None = None, chunk: int = CHUNK) -> None:
    for start in range(0, count, chunk):
        portion = min(chunk, count - start)
        store.enqueue_many([NewJob(task=TASK, queue=QUEUE, payload=payload or {}) for _ in range(portion)])


def url_of(store: SqlStore) -> str:
    return store.database.engine.url.render_as_string(hide_password=False)


def drain_rate(store: SqlStore, count: int, workers: int, *, settle: bool = True) -> float:
    """Enqueue so many and let so many workers drain them: jobs/s, from the first claim to the last outcome, as the
    store has them. Whatever else is in the store stays out of the figure."""
    enqueue(store, count)
    return drained(store, count, workers, settle=settle)


def drained(store: SqlStore, count: int, workers: int, *, settle: bool = True) -> float:
    """The same for jobs that are there already."""
    if settle:
        settle_down(store)
    since = store.feed(None).now
    with started(store, workers, "--drain") as processes:
        for process in processes:
            assert process.wait() == 0
    first, last, done = ended_since(store, since)
    assert done == count, f"{done} of {count} jobs were done"
    return count / (last - first).total_seconds()


@contextmanager
def started(store: SqlStore, workers: int, *flags: str) -> Iterator[Sequence[subprocess.Popen[bytes]]]:
    """Real `holdfast worker` processes of two runners each."""
    with tempfile.TemporaryDirectory() as folder:
        (Path(folder) / "tasks.py").write_text(APP)
        command = [sys.executable, "-m", "holdfast", "worker", "tasks:app", "--processes", "2", "--log-level", "error"]
        environment = {**os.environ, "DATABASE_URL": url_of(store)}
        processes = [subprocess.Popen([*command, *flags], cwd=folder, env=environment) for _ in range(workers)]
        try:
            yield processes
        finally:
            for process in processes:
                process.terminate()
            for process in processes:
                process.wait()


def ended_since(store: SqlStore, since: datetime, until: datetime | None = None) -> tuple[datetime, datetime, int]:
    """The first claim, the last end, and how many."""
    ended = [jobs.c.queue == QUEUE, jobs.c.state == "succeeded", jobs.c.finished_at > since]
    if until is not None:
        ended.append(jobs.c.finished_at <= until)
    wanted = select(func.min(jobs.c.claimed_at), func.max(jobs.c.finished_at), func.count()).where(*ended)
    with store.database.engine.connect() as connection:
        first, last, done = connection.execute(wanted).one()
    return first, last, done
