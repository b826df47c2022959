"""How fast real workers drain no-op jobs, from the first claim to the last outcome as the store has them.

Everything is paid for: lease, audit rows, a process of its own for user code. Start-up is not in the figure.
"""

from __future__ import annotations

import os
import subprocess
import sys
import tempfile
from pathlib import Path

from sqlalchemy import text

from benchmarks.databases import Databases, settle_down
from benchmarks.tables import markdown
from holdfast.domain.job import NewJob
from holdfast.stores.sql_store import SqlStore

JOBS = 50_000
APP = "from holdfast import App\napp = App()\n\n@app.task\ndef noop() -> None:\n    pass\n"
DONE = "state = 'succeeded'"
POSTGRES_SPAN = "extract(epoch FROM max(finished_at) - min(claimed_at))"
SQLITE_SPAN = "(julianday(max(finished_at)) - julianday(min(claimed_at))) * 86400"


def run(handed: Databases, *, scale: float = 1.0) -> str:
    count = max(500, int(JOBS * scale))
    rows = [[kind, *(_rate(handed, kind, workers, count) for workers in (1, 2))] for kind in handed.kinds]
    return f"Draining {count:,} no-op jobs, jobs/s\n\n" + markdown(
        ["store", "1 worker of 2 processes", "2 workers"], rows
    )


def _rate(handed: Databases, kind: str, workers: int, count: int) -> float:
    with handed.store(kind) as store, tempfile.TemporaryDirectory() as folder:
        (Path(folder) / "tasks.py").write_text(APP)
        for start in range(0, count, 1_000):
            store.enqueue_many([NewJob(task="noop") for _ in range(min(1_000, count - start))])
        settle_down(store)
        _drain(store, folder, workers)
        return measured(store, count)


def _drain(store: SqlStore, folder: str, workers: int) -> None:
    url = store.database.engine.url.render_as_string(hide_password=False)
    command = [sys.executable, "-m", "holdfast", "worker", "tasks:app", "--drain", "--processes", "2"]
    environment = {**os.environ, "DATABASE_URL": url}
    started = [
        subprocess.Popen([*command, "--log-level", "error"], cwd=folder, env=environment) for _ in range(workers)
    ]
    for worker in started:
        assert worker.wait() == 0


def measured(store: SqlStore, count: int) -> float:
    span = POSTGRES_SPAN if store.database.dialect == "postgresql" else SQLITE_SPAN
    with store.database.engine.connect() as connection:
        seconds, done = connection.execute(text(f"SELECT {span}, count(*) FROM holdfast_jobs WHERE {DONE}")).one()
    assert done == count
    return count / float(seconds)
