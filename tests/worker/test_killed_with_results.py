"""SIGKILL of a whole worker at every step of a result's way, from before the write until after the commit.

Whenever it comes: one outcome, every file on record is there and is what was recorded, and what nobody speaks of can be
collected. One worker has a job at each step, held there until the kill; so one kill and one rescuer are enough.
"""

import hashlib
import sqlite3
from collections.abc import Callable, Iterator
from contextlib import contextmanager

import psycopg
from sqlalchemy import make_url

from holdfast import App
from holdfast.artifacts.opening import artifacts_root, open_artifacts
from holdfast.domain.lifecycle import State
from holdfast.maintenance.collecting import collect
from tests.chaos.databases import conninfo, query
from tests.servers.waiting import DEADLINE_SECONDS
from tests.worker.site import Site, WorkerProcess

SIZE = 300_000
# What each step leaves in the folder of the attempt that died there.
LEFT = {
    "before_the_write": {"page.html"},
    "before_the_rename": {"page.html", ".saving-"},
    "after_the_write": {"page.html", "result.json"},
    "before_the_commit": {"page.html", "result.json"},
    "after_the_commit": {"page.html", "result.json"},
}
TASKS = """
    import holdfast.artifacts.local as local
    real_write, real_replace = local.LocalArtifacts.write, os.replace

    def die(step):
        Path(step).write_text("here")  # the kernel takes this process after its supervisor
        time.sleep(600)

    def dying_write(self, reference, data):
        real_write(self, reference, data)
        die("after_the_write")

    def dying_replace(temporary, path):
        die("before_the_rename")

    @app.task
    def make(ctx: Context, step: str) -> str:
        ctx.save("page.html", f"by {ctx.attempt}")
        if ctx.attempt == 1:
            if step == "before_the_write":
                local.LocalArtifacts.write = lambda self, reference, data: die("before_the_write")
            elif step == "before_the_rename":
                local.os.replace = dying_replace
            elif step == "after_the_write":
                local.LocalArtifacts.write = dying_write
            elif step == "before_the_commit":
                Path(step).write_text("here")
                while not Path("go").exists():
                    time.sleep(0.02)
        return f"{ctx.attempt}" * 300_000
"""


def test_wherever_the_kill_comes_there_is_one_outcome_and_nothing_dangles(site: Site) -> None:
    site.tasks(TASKS)
    jobs = {step: site.enqueue("make", {"step": step}) for step in reversed(LEFT)}  # one has to end before the others
    worker = site.worker("--processes", str(len(LEFT) - 1))
    site.wait_for_state(jobs["after_the_commit"], State.SUCCEEDED)
    for step in ("before_the_write", "before_the_rename", "after_the_write"):
        site.wait_for_file(step)
    _kill_before_the_commit(site, jobs["before_the_commit"], worker)
    assert site.counts() == {"running": 4, "succeeded": 1}
    site.take_leases(*(job_id for step, job_id in jobs.items() if step != "after_the_commit"))
    files = open_artifacts(artifacts_root(str(site.folder / "holdfast-artifacts"), site.store.store_id()))
    for step, job_id in jobs.items():
        left = {file.path.rpartition("/")[2] for file in files.files(job_id) if file.path.startswith(f"{job_id}/1/")}
        assert {name if not name.startswith(".") else name[: len(".saving-")] for name in left} == LEFT[step], step

    site.worker("--processes", "1")
    for job_id in jobs.values():
        site.wait_for_state(job_id, State.SUCCEEDED)
    app = App(site.url, artifacts=site.folder / "holdfast-artifacts")
    on_record = set()
    for step, job_id in jobs.items():
        job, attempt = site.job(job_id), 1 if step == "after_the_commit" else 2
        assert (job.attempt, job.crashes, job.failures) == (attempt, attempt - 1, 0), step
        assert site.event_names(job_id).count("succeeded") == 1
        assert (job.result, job.result_ref) == (None, f"{job_id}/{attempt}/result.json")
        assert app.handle(job_id).result() == f"{attempt}" * SIZE
        saved = site.store.artifacts(job_id)
        assert [(a.attempt, a.name) for a in saved] == [(attempt, "page.html"), (attempt, "result.json")], step
        for artifact in saved:
            assert hashlib.sha256(files.read(artifact.reference)).hexdigest() == artifact.sha256
            on_record.add(str(artifact.reference))
    app.close()

    found = {file.path for job_id in files.job_folders() for file in files.files(job_id)}
    by_the_dead = sum(len(names) for step, names in LEFT.items() if step != "after_the_commit")
    assert len(found - on_record) == by_the_dead
    assert sum(collect(site.store, files, grace_seconds=-5.0)) == by_the_dead
    assert {file.path for job_id in files.job_folders() for file in files.files(job_id)} == on_record


def _kill_before_the_commit(site: Site, job_id: str, worker: WorkerProcess) -> None:
    """The report is on its way, or even half-way through its transaction, and cannot be committed."""
    site.wait_for_file("before_the_commit")
    with _no_commit(site) as is_waiting:
        site.tell("go")
        result = site.folder / "holdfast-artifacts" / site.store.store_id() / job_id / "1" / "result.json"
        site.wait(result.exists, "the result is written")
        site.wait(is_waiting, "the report is on its way")
        worker.kill()
    assert site.job(job_id).state is State.RUNNING


@contextmanager
def _no_commit(site: Site) -> Iterator[Callable[[], bool]]:
    if site.is_sqlite:
        file = sqlite3.connect(make_url(site.url).database or "", isolation_level=None, timeout=DEADLINE_SECONDS)
        file.execute("BEGIN IMMEDIATE")
        yield lambda: True
        file.execute("ROLLBACK")
        file.close()
        return
    waiting = "SELECT count(*) FROM pg_stat_activity WHERE datname = current_database() AND wait_event_type = 'Lock'"
    with psycopg.connect(conninfo(site.url)) as mine:
        # The attempt has been ended by the transaction's first statement; the second one waits for this.
        mine.execute("LOCK TABLE holdfast_artifacts IN SHARE MODE")
        yield lambda: query(site.url, f"{waiting} AND query LIKE '%INSERT INTO holdfast_artifacts%'")[0][0] == 1
        mine.rollback()
    site.wait(lambda: query(site.url, waiting)[0][0] == 0, "nobody waits any more")
