"""Large results and saved files through real workers: where they go, what is on record, what happens without space."""

import hashlib
import os
import time
from pathlib import Path

from holdfast import App, ArtifactUnavailable
from holdfast.artifacts.opening import artifacts_root, open_artifacts
from holdfast.domain.artifacts import INLINE_RESULT_BYTES
from holdfast.domain.events import Events
from holdfast.domain.lifecycle import State
from holdfast.maintenance.collecting import GRACE_SECONDS
from holdfast.worker.options import WorkerOptions
from holdfast.worker.start import Worker
from tests.chaos.databases import conninfo
from tests.worker.lease_clock import LeaseClock
from tests.worker.site import Site

LIMIT = 6000.0
TASKS = """
    import hashlib, resource

    @app.task
    def big(size: int) -> str:
        return "x" * size

    @app.task
    async def abig(size: int) -> str:
        return "x" * size

    app.command("program", ["sh", "-c", 'printf \\'{"holdfast": "result", "result": "%0300000d"}\\\\n\\' 7'])

    @app.task
    def binary(ctx: Context):
        return ctx.save("deep/er/model.bin", bytes(range(256)) * 100_000)

    @app.task(max_attempts=1)
    def fails(ctx: Context):
        ctx.save("page.html", "<p>")
        ctx.save("page.html", "<p>again")
        raise ValueError("unexpected page")

    @app.task(max_attempts=1)
    def never_ends(ctx: Context):
        ctx.save("page.html", "<p>")
        print("saved", flush=True)
        time.sleep(600)

    @app.task(max_crashes=1)
    def dies(ctx: Context):
        ctx.save("page.html", "<p>")
        os.kill(os.getpid(), signal.SIGKILL)

    @app.task(max_crashes=1)
    def dies_while_it_saves_again(ctx: Context):
        import holdfast.artifacts.local as local
        ctx.save("other.html", "<p>")
        ctx.save("page.html", "<p>")
        write = local.LocalArtifacts.write

        def dying_write(self, reference, data):
            write(self, reference, data)
            os.kill(os.getpid(), signal.SIGKILL)

        local.LocalArtifacts.write = dying_write
        ctx.save("page.html", "<p>again")

    @app.task(max_attempts=1)
    def without_space(ctx: Context, size: int):
        # As a full disk does: the first bytes are written, the next are refused.
        hard = resource.getrlimit(resource.RLIMIT_FSIZE)[1]
        resource.setrlimit(resource.RLIMIT_FSIZE, (10_000, hard))
        return "x" * size
"""


def on(site: Site, folder: str = "holdfast-artifacts") -> App:
    """As a client in the same project sees it."""
    return App(site.url, artifacts=site.folder / folder)


def test_results_too_large_for_a_row_are_files(site: Site) -> None:
    site.tasks(TASKS)
    jobs = {size: site.enqueue("big", {"size": size}) for size in (INLINE_RESULT_BYTES - 2, 300_000, 20_000_000)}
    coroutine, program = site.enqueue("abig", {"size": 300_000}), site.enqueue("program")
    binary, fails = site.enqueue("binary"), site.enqueue("fails", max_attempts=1)
    never_ends = site.enqueue("never_ends", max_attempts=1, timeout_seconds=LIMIT, lease_seconds=2 * LIMIT)
    dies, again = site.enqueue("dies", max_crashes=1), site.enqueue("dies_while_it_saves_again", max_crashes=1)
    clock = LeaseClock(site.folder / "clock")
    worker = site.worker("--drain", "--processes", "2", program=clock.program)
    site.wait_for_counts(running=1, succeeded=6, failed=3)
    site.wait(lambda: site.store.count_logs(never_ends) > 0, "the worker knows that it runs")
    clock.advance(LIMIT)
    assert worker.wait() == 0
    app = on(site)
    for size, job_id in jobs.items():
        assert app.handle(job_id).result() == "x" * size
        is_inline = size < INLINE_RESULT_BYTES
        assert site.job(job_id).result_ref == (None if is_inline else f"{job_id}/1/result.json")
    assert app.handle(coroutine).result() == "x" * 300_000
    assert app.handle(program).result() == "0" * 299_999 + "7"
    assert site.job(program).result_ref == f"{program}/1/result.json"
    content = bytes(range(256)) * 100_000
    assert app.handle(binary).result() == content
    [artifact] = site.store.artifacts(binary)
    assert (artifact.bytes, artifact.sha256) == (len(content), hashlib.sha256(content).hexdigest())

    # However an attempt ends, what it had saved is on record; and only as it was saved last.
    for job_id, saved in ((fails, b"<p>again"), (never_ends, b"<p>"), (dies, b"<p>")):
        assert site.job(job_id).state is State.FAILED
        assert app.handle(job_id).read("page.html") == saved
    # Its page is neither what it was nor told of as what it is: it is not on record.
    assert site.job(again).state is State.FAILED
    assert [artifact.name for artifact in site.store.artifacts(again)] == ["other.html"]
    app.close()


def test_without_space_the_attempt_fails_in_words_and_the_worker_goes_on(sqlite_site: Site) -> None:
    site = sqlite_site
    site.tasks(TASKS)
    full, small = site.enqueue("without_space", {"size": 300_000}, max_attempts=1), site.enqueue("big", {"size": 5})
    site.drain("--processes", "1")
    job = site.job(full)
    assert job.state is State.FAILED
    assert job.last_error is not None
    assert (job.last_error["code"], job.last_error["retryable"]) == (ArtifactUnavailable.__name__, True)
    assert "cannot be saved in" in job.last_error["message"]
    assert "File too large" in job.last_error["message"]
    assert site.job(small).result == "xxxxx"
    assert [path for path in (site.folder / "holdfast-artifacts").rglob("*") if path.is_file()] == []


def test_the_app_says_where_files_go_and_a_flag_overrules_it(sqlite_site: Site) -> None:
    site = sqlite_site
    site.tasks("""
        app = App(artifacts="of-the-app")

        @app.task
        def big() -> str:
            return "x" * 300_000

        @app.task
        def reads(other: str) -> int:
            return len(app.handle(other).result())
    """)
    first = site.enqueue("big")
    site.drain("--processes", "1", HOLDFAST_ARTIFACTS="of-the-environment")
    second = site.enqueue("big")
    third = site.enqueue("reads", {"other": second})
    site.drain("--processes", "1", "--artifacts", "of-the-flag")
    assert on(site, "of-the-app").handle(first).result() == "x" * 300_000
    assert on(site, "of-the-flag").handle(second).result() == "x" * 300_000
    assert site.job(third).result == 300_000
    assert not (site.folder / "of-the-environment").exists()


def test_who_has_lost_its_lease_writes_beside_its_successor(sqlite_site: Site) -> None:
    site = sqlite_site
    site.tasks("""
        @app.task(on_lost_lease="continue")
        def save(ctx: Context):
            if ctx.attempt == 1:
                ctx.save("page.html", "early")
                Path("started").write_text("1")
                while not Path("go").exists():
                    time.sleep(0.02)
            ref = ctx.save("page.html", f"by {ctx.attempt}")
            if ctx.attempt == 1:
                Path("late").write_text("1")
            return ref
    """)
    job_id = site.enqueue("save")
    worker = site.worker("--processes", "2")
    site.wait_for_file("started")
    site.take_leases(job_id)
    site.wait_for_state(job_id, State.SUCCEEDED)
    site.tell("go")
    site.wait_for_file("late")
    site.wait_for_refusals(job_id)
    assert worker.stop() == 0
    app = on(site)
    assert app.handle(job_id).result() == "by 2"
    assert [(a.attempt, a.name) for a in site.store.artifacts(job_id)] == [(2, "page.html")]
    files = open_artifacts(artifacts_root(str(site.folder / "holdfast-artifacts"), site.store.store_id()))
    assert files.read(f"{job_id}/1/page.html") == b"by 1", "it has its own place, where nobody looks"
    app.close()


def test_a_job_that_ends_in_the_users_transaction_has_its_files_on_record_there(postgres_site: Site) -> None:
    site = postgres_site
    site.tasks(
        f"CONNINFO = {conninfo(site.url)!r}\n"
        + """
import psycopg

@app.task
def completes(ctx: Context):
    ctx.save("page.html", "<p>")
    with psycopg.connect(CONNINFO) as mine:
        ctx.complete_in(mine, "x" * 300_000)

@app.task(max_attempts=1)
def rolls_back(ctx: Context):
    ctx.save("page.html", "<p>")
    with psycopg.connect(CONNINFO) as mine:
        ctx.complete_in(mine, "y" * 300_000)
        raise ValueError("after all")

@app.task
def tries_again(ctx: Context):
    for number in (1, 2):
        with psycopg.connect(CONNINFO) as mine:
            ctx.save("page.html", "<p>")
            ctx.complete_in(mine, str(number) * 300_000)
            if number == 1:
                mine.rollback()

@app.task
def returns_a_reference(ctx: Context):
    with psycopg.connect(CONNINFO) as mine:
        ctx.complete_in(mine, ctx.save("page.html", "<p>"))
    for name, data in (("page.html", "<p>"), ("page.html", "other")):
        try:
            ctx.save(name, data)
        except ValueError as error:
            Path(__file__).with_name("refused").write_text(str(error))
"""
    )
    jobs = {
        task: site.enqueue(task, max_attempts=1)
        for task in ("completes", "rolls_back", "tries_again", "returns_a_reference")
    }
    site.drain("--processes", "1")
    app = on(site)

    def names(task: str) -> list[str]:
        return [artifact.name for artifact in site.store.artifacts(jobs[task])]

    assert app.handle(jobs["completes"]).result() == "x" * 300_000
    assert names("completes") == ["page.html", "result.json"]
    # The transaction is gone with what was on record in it; the attempt's own end brings the files back.
    assert site.job(jobs["rolls_back"]).state is State.FAILED
    assert app.handle(jobs["rolls_back"]).read("page.html") == b"<p>"
    assert app.handle(jobs["tries_again"]).result() == "2" * 300_000
    assert names("tries_again") == ["page.html", "result-2.json", "result.json"]
    assert app.handle(jobs["returns_a_reference"]).result() == "<p>"
    assert "may be on record by ctx.complete_in" in (site.folder / "refused").read_text()
    app.close()


def test_every_worker_collects_when_its_turn_comes(tmp_path: Path) -> None:
    url = f"sqlite:///{tmp_path / 'jobs.db'}"
    options = WorkerOptions(app="x:app", database_url=url, artifacts_url=str(tmp_path / "files"), worker_id="w")
    worker = Worker(options, Events())
    store = worker._control()
    files = open_artifacts(artifacts_root(str(tmp_path / "files"), store.store_id()))
    files.write("01890a5d-ac96-774b-bcce-b302099a8057/1/a", b"nobody's")
    [chore] = [chore for chore in worker._chores(store) if chore.name == "artifacts"]
    assert list(chore.steps()) == [0], "it is young"
    old = time.time() - 2 * GRACE_SECONDS
    os.utime(tmp_path / "files" / store.store_id() / "01890a5d-ac96-774b-bcce-b302099a8057" / "1" / "a", (old, old))
    assert list(chore.steps()) == [1]
    assert list(files.job_folders()) == []
    worker._control.close()
