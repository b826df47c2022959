"""Every page of the dashboard, and `/metrics`, over a million jobs and three million rows of audit log on Postgres.

Jobs of a day, claimed in order a tenth of a day later: most have succeeded, some failed, the newest wait, a few run;
twenty tasks and one that is rare, of the first hours alone. Each address
is asked for once, and then again and again, by a client on the same machine; the time is what it takes until the answer
is there. At the end, how long it takes until an open page hears of a change.
"""

from __future__ import annotations

import statistics
import sys
import threading
import time
from collections.abc import Iterator
from contextlib import contextmanager

import httpx
from sqlalchemy import text

from benchmarks.databases import Databases, settle_down
from benchmarks.tables import markdown
from holdfast.domain.job import NewJob
from holdfast.domain.tokens import NewToken, Scope
from holdfast.serve.dashboard.session import cookie_name
from holdfast.serve.options import ServeSettings
from holdfast.serve.running import ControlPlane
from holdfast.stores.sql_store import SqlStore

JOBS = 1_000_000
TIMES = 20
NEWS = 10
RUNNING = 200

_AT = "(now() - interval '1 day' + n * (interval '1 day' / {count}))"
_WAIT = "interval '1 day' / 10"  # a tenth of all jobs
_ID = (
    "CAST(lpad(to_hex(CAST(extract(epoch FROM {at}) * 1000 AS bigint)), 12, '0') || '7'"
    " || lpad(to_hex(n % 4096), 3, '0') || '8' || lpad(to_hex(n), 15, '0') AS uuid)"
)
# The newest are still waiting or run; of the others two in a hundred failed, one in two hundred was cancelled.
_STATE = (
    "CASE WHEN n > {count} - {running} THEN 'running' WHEN n > {count} - {waiting} THEN 'pending'"
    " WHEN n % 50 = 0 THEN 'failed' WHEN n % 200 = 7 THEN 'cancelled' ELSE 'succeeded' END"
)
_NUMBERS = """
    WITH numbers AS (
      SELECT n, {at} AS at, {id} AS id, {state} AS state,
        CASE WHEN n % 100000 = 1 AND n < {count} / 3 THEN 'rare task' ELSE 'task ' || n % 20 END AS task,
        'queue ' || n % 8 AS queue,
        CASE WHEN n % 3 = 0 THEN 'source ' || n % 5 END AS source
      FROM generate_series(1, {count}) n),
    lives AS (
      SELECT *, CASE WHEN state <> 'pending' THEN at + {wait} END AS begun_at,
        CASE WHEN state NOT IN ('pending', 'running') THEN at + {wait} + interval '20 ms' END AS ended_at
      FROM numbers)
"""
_JOBS = """
    INSERT INTO holdfast_jobs (id, task, queue, state, source, spec_hash, payload, attempt, seq, transition, created_at,
      run_after, updated_at, started_at, claimed_at, finished_at, last_error, lease_owner, lease_token,
      lease_expires_at)
    SELECT id, task, queue, state, source, md5(n::text) || md5(n::text), '{{"n": 1}}', started, 1 + started + ended,
      CASE WHEN state = 'running' THEN 'claimed' WHEN state = 'pending' THEN 'enqueued' ELSE state END, at, at,
      coalesce(ended_at, begun_at, at), begun_at, begun_at, ended_at,
      CASE WHEN state = 'failed' THEN
        json_build_object('code', 'Error' || n % 7, 'message', 'row ' || n || ' is wrong', 'stack', repeat('x', 400))
      END,
      CASE WHEN state = 'running' THEN 'worker ' || n % 9 END, CASE WHEN state = 'running' THEN 'digest' || n END,
      CASE WHEN state = 'running' THEN now() + interval '1 hour' END
    FROM (SELECT *, CASE WHEN begun_at IS NULL THEN 0 ELSE 1 END AS started,
      CASE WHEN ended_at IS NULL THEN 0 ELSE 1 END AS ended FROM lives) known
"""
_EVENTS = """
    INSERT INTO holdfast_events (job_id, seq, at, event, from_state, to_state, attempt, worker, lease)
    SELECT id, 1, at, 'enqueued', NULL, 'pending', 0, NULL, NULL FROM lives
    UNION ALL SELECT id, 2, begun_at, 'claimed', 'pending', 'running', 1, 'worker ' || n % 9, 'lease' || n
      FROM lives WHERE begun_at IS NOT NULL
    UNION ALL SELECT id, 3, ended_at, state, 'running', state, 1, 'worker ' || n % 9, 'lease' || n
      FROM lives WHERE ended_at IS NOT NULL
    ORDER BY 3
"""
_HISTOGRAM = "'[0,0,0,0,1,5,20,40,20,5,2,1]'"
_MINUTES = f"""
    INSERT INTO holdfast_minutes (kind, name, minute, enqueued, started, succeeded, failed, ready, scheduled, running,
      wait, run)
    SELECT kind, name, date_trunc('minute', now()) - m * interval '1 minute', 90, 90, 88, 2, 1000, 0, 20,
      {_HISTOGRAM}, {_HISTOGRAM}
    FROM generate_series(0, 11000) m CROSS JOIN (
      SELECT 'all' AS kind, '' AS name UNION ALL SELECT 'queue', 'queue ' || n FROM generate_series(0, 7) n
      UNION ALL SELECT 'task', 'task ' || n FROM generate_series(0, 19) n
      UNION ALL SELECT 'source', 'source ' || n FROM generate_series(0, 4) n) names
    ON CONFLICT DO NOTHING
"""


def run(handed: Databases, *, scale: float = 1.0) -> str:
    if "postgres" not in handed.kinds:
        return "### The dashboard\n\nThere is no Postgres."
    count = max(5_000, int(JOBS * scale))
    with handed.store("postgres") as store:
        _load(store, count)
        settle_down(store)
        events = _scalar(store, "SELECT count(*) FROM holdfast_events")
        with _serving(store) as (client, url):
            rows = [[name, *_measure(client, url + path)] for name, path in _addresses(store)]
            news = _measure_news(store, client, url)
    title = f"### Pages over {count:,} jobs and {events:,} rows of audit log (Postgres)\n\n"
    said = f"\n\nAn open page hears of a change after {statistics.median(news):.0f} ms ({max(news):.0f} at most)."
    return title + markdown(["address", "first, ms", "median, ms", "slowest, ms", "bytes"], rows) + said


def _load(store: SqlStore, count: int) -> None:
    at = _AT.format(count=count)
    state = _STATE.format(count=count, running=RUNNING, waiting=count // 10)
    numbers = _NUMBERS.format(at=at, id=_ID.format(at=at), state=state, wait=_WAIT, count=count)
    for number in range(5):
        store.set_source(f"source {number}", rate_limit_per_minute=600.0, max_concurrent=50)
    with store.database.engine.connect() as connection:
        for statement in (
            "BEGIN",
            "SET LOCAL session_replication_role = replica",
            numbers + _JOBS.format(),
            numbers + _EVENTS,
            _MINUTES,
            "COMMIT",
            "VACUUM ANALYZE holdfast_events",
            "VACUUM ANALYZE holdfast_minutes",
        ):
            connection.exec_driver_sql(statement, execution_options={"no_parameters": True})


def _addresses(store: SqlStore) -> Iterator[tuple[str, str]]:
    job = _scalar(store, "SELECT id::text FROM holdfast_jobs WHERE state = 'failed' LIMIT 1")
    hashed = str(_scalar(store, "SELECT spec_hash FROM holdfast_jobs WHERE task = 'rare task' LIMIT 1"))
    middle = _scalar(store, "SELECT id::text FROM holdfast_jobs ORDER BY id OFFSET 500 LIMIT 1")
    yield "Overview", "/"
    for words in ("1 h", 3_600), ("7 d", 604_800):
        yield f"Charts, {words[0]}", f"/charts/all?seconds={words[1]}"
    yield "Jobs", "/jobs"
    yield "Jobs, the last page", f"/jobs?after={middle}"
    for state in ("pending", "running", "retryable", "succeeded", "failed", "cancelled"):
        yield f"Jobs, {state}", f"/jobs?state={state}"
    yield "Jobs of a task", "/jobs?task=task+3"
    yield "Jobs of a rare task", "/jobs?task=rare+task"
    yield "Jobs of no task", "/jobs?task=nobody"
    yield "Jobs of a queue, failed", "/jobs?queue=queue+2&state=failed"
    yield "Jobs of a source", "/jobs?source=source+3"
    yield "Jobs of no source", "/jobs?source=nobody"
    yield "Jobs by spec hash", f"/jobs?spec={hashed}"
    yield "Jobs by the beginning of one", f"/jobs?spec={hashed[:8]}"
    yield "Jobs by error", "/jobs?state=failed&error=Error3"
    yield "Jobs held by a worker", "/jobs?worker=worker+3"
    yield "A job", f"/jobs/{job}"
    for page in ("queues", "workers", "sources", "dead", "schedules"):
        yield page.capitalize(), f"/{page}"
    yield "A source", "/sources/source%203"
    yield "Metrics", "/metrics"
    yield "Audit", "/audit"
    yield "Audit, failed", "/audit?event=failed"
    yield "Audit, of nothing", "/audit?event=lease_lost"
    yield "Audit, of a task", "/audit?task=task+3"
    yield "Audit, of a rare task", "/audit?task=rare+task"
    yield "Audit, of a queue, failed", "/audit?queue=queue+2&event=failed"
    yield "Audit, of a worker", "/audit?worker=worker+3"
    yield "Audit, of no worker", "/audit?worker=nobody"


def _measure(client: httpx.Client, address: str) -> list[object]:
    took = []
    for _ in range(1 + TIMES):
        began = time.perf_counter()
        response = client.get(address)
        took.append((time.perf_counter() - began) * 1000)
        assert response.status_code == 200, (address, response.status_code, response.text[:500])
    print(f"{statistics.median(took[1:]):8.1f} ms  {address}", file=sys.stderr, flush=True)
    return [took[0], statistics.median(took[1:]), max(took[1:]), len(response.content)]


def _measure_news(store: SqlStore, client: httpx.Client, url: str) -> list[float]:
    """From the commit of an enqueue until the page's stream says so, in milliseconds."""
    heard = threading.Semaphore(0)
    over = threading.Event()

    def listen() -> None:
        with client.stream("GET", f"{url}/live", timeout=60) as stream:
            for line in stream.iter_lines():
                if line.startswith(("event: change", "event: now")):
                    heard.release()
                if over.is_set():
                    return

    thread = threading.Thread(target=listen, daemon=True)
    thread.start()
    assert heard.acquire(timeout=30)
    took = []
    for _ in range(NEWS):
        store.enqueue(NewJob(task="news", queue="news"))
        began = time.perf_counter()
        assert heard.acquire(timeout=30)
        took.append((time.perf_counter() - began) * 1000)
    over.set()
    store.enqueue(NewJob(task="news", queue="news"))
    thread.join(30)
    return took


@contextmanager
def _serving(store: SqlStore) -> Iterator[tuple[httpx.Client, str]]:
    token = store.create_token(NewToken("bench", (Scope.ADMIN,))).text
    database_url = store.database.engine.url.render_as_string(hide_password=False)
    control = ControlPlane(ServeSettings(database_url=database_url, port=0, duties=False))
    control.start()
    try:
        with httpx.Client(cookies={cookie_name(httpx.URL(control.url).port): token}, timeout=120) as client:
            yield client, control.url
    finally:
        control.stop()


def _scalar(store: SqlStore, statement: str) -> object:
    with store.database.engine.connect() as connection:
        return connection.scalar(text(statement))
