"""What the processes of a worker load and weigh: a runner almost nothing, the supervisor its store and little else."""

import json
import subprocess
import sys

import psutil

from holdfast.domain.job import NewJob
from holdfast.domain.lifecycle import State
from tests.servers.waiting import DEADLINE_SECONDS, wait_until
from tests.worker.site import Site

MIB = 1024 * 1024
TASKS = """
import sys
from holdfast import App, Context
app = App()

@app.task
def loaded(ctx: Context, number: int = 0) -> list[str]:
    ctx.log("hello")
    ctx.progress(1, 1)
    return sorted(sys.modules)
"""
# Of a runner: what is not user code's own.
HEAVY = {
    *("alembic", "asyncio", "fastapi", "httpx", "mako", "opentelemetry", "prometheus_client", "psycopg", "pydantic"),
    *("redis", "rich", "sqlalchemy", "ssl", "structlog", "subprocess", "typer", "uvicorn"),
}
OF_A_SUPERVISOR = HEAVY - {"asyncio", "psycopg", "sqlalchemy", "ssl", "subprocess", "typer"}
SUPERVISOR = """
import json, sys
from holdfast.cli import main
code = main(sys.argv[1:])
print(json.dumps([code, sorted(sys.modules)]))
"""


def supervisor_modules(site: Site, *flags: str) -> set[str]:
    """Of a worker that has run one job and ended."""
    site.store.enqueue(NewJob(task="loaded"))
    done = subprocess.run(
        [sys.executable, "-c", SUPERVISOR, "--database", site.url, "worker", "tasks:app", "--drain", *flags],
        cwd=site.folder,
        env=site.environment(),
        capture_output=True,
        text=True,
        check=True,
        timeout=DEADLINE_SECONDS,
    )
    code, modules = json.loads(done.stdout.splitlines()[-1])
    assert code == 0, done.stderr
    return set(modules)


def packages(modules: set[str]) -> set[str]:
    return {name.partition(".")[0] for name in modules}


def test_a_runner_of_functions_loads_no_library_that_its_tasks_do_not(sqlite_site: Site) -> None:
    (sqlite_site.folder / "tasks.py").write_text(TASKS)
    job = sqlite_site.store.enqueue(NewJob(task="loaded"))
    assert sqlite_site.worker("--drain", "--processes", "1").wait() == 0

    result = sqlite_site.store.job(job.id).result
    assert isinstance(result, list)
    assert packages(set(result)) & HEAVY == set()
    assert not {name for name in result if name.startswith(("holdfast.cli", "holdfast.stores", "holdfast.worker"))}


def test_a_supervisor_loads_its_store_and_nothing_for_people_or_pages(site: Site) -> None:
    (site.folder / "tasks.py").write_text(TASKS)
    modules = supervisor_modules(site, "--processes", "1")

    assert packages(modules) & OF_A_SUPERVISOR == set()
    assert ("psycopg" in modules) is not site.is_sqlite
    assert not {name for name in modules if name.startswith(("sqlalchemy.orm", "holdfast.serve", "holdfast.doctor"))}


def test_a_supervisor_and_two_runners_stay_below_150_mib(site: Site) -> None:
    (site.folder / "tasks.py").write_text(TASKS)
    worker = site.worker("--processes", "2", log_level="info")
    wait_until(lambda: len(worker.runners()) == 2, what="both runners have started")
    jobs = site.store.enqueue_many([NewJob(task="loaded", payload={"number": number}) for number in range(100)])
    last = jobs[-1].id
    wait_until(
        lambda: site.store.job(last).state is State.SUCCEEDED and not site.store.jobs(states=(State.PENDING,)).items,
        what="every job has run",
    )

    everybody = [psutil.Process(worker.pid), *worker.runners()]
    assert len(everybody) == 3
    resident = sum(process.memory_info().rss for process in everybody)
    assert resident < 150 * MIB, f"{resident / MIB:.0f} MiB"
