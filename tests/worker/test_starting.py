"""What a worker needs to start, where it finds it, and what it says when it does not."""

import re
from pathlib import Path

import pytest

from holdfast.domain.job import NewJob
from holdfast.domain.lifecycle import State
from tests.chaos.databases import opened
from tests.worker.notes import NOTE, notes
from tests.worker.site import HEAD, Site

NOTHING = "@app.task\ndef nothing(): pass"


@pytest.fixture
def site(sqlite_site: Site) -> Site:
    """One kind of database is enough: it is not what these tests are about."""
    return sqlite_site


@pytest.mark.parametrize(
    ("source", "reason"),
    [
        pytest.param("import no_such_module", "No module named 'no_such_module'", id="an import that fails"),
        pytest.param("", "has no tasks: decorate a function with @app.task", id="no tasks"),
        pytest.param("del app", "app", id="no such name"),
    ],
)
def test_app_that_cannot_be_used_ends_the_worker_with_2_and_the_reason(site: Site, source: str, reason: str) -> None:
    site.tasks(source)
    worker = site.worker("--processes", "1")
    assert worker.wait() == 2, worker.text()
    last = [line for line in worker.text().splitlines() if not line.startswith("{")]
    assert reason in "\n".join(last)
    assert site.store.workers() == []


def test_worker_without_an_app_ends_with_2_and_a_sentence_that_helps(site: Site) -> None:
    worker = site.start("worker")
    assert worker.wait() == 2
    assert "Name the app: holdfast worker MODULE:APP" in worker.text()


def test_heartbeat_that_does_not_fit_the_lease_ends_the_worker_with_2_and_the_rule(site: Site) -> None:
    site.tasks(NOTHING)
    worker = site.worker("--heartbeat", "9s", LEASE_SECONDS="10")
    assert worker.wait() == 2
    assert "does not fit in half of a lease of 10 s" in worker.text()
    assert "Take a heartbeat of at most" in worker.text()


def test_files_that_could_never_be_kept_end_the_worker_with_2_and_the_way_out(site: Site) -> None:
    """The app names the place, which only a runner can know; an unknown protocol is found in the same way."""
    site.tasks("app = App(artifacts='memory://me:hunter2@jobs')\n" + NOTHING)
    worker = site.worker("--processes", "1")
    assert worker.wait() == 2, worker.text()
    assert "memory://me:***@jobs: every process of a worker has a memory of its own" in worker.text()
    assert "hunter2" not in worker.text()
    assert site.store.workers() == []


def test_app_and_worker_id_come_from_the_settings_and_the_totals_are_printed(site: Site) -> None:
    """The label is the user's, the random part never is; queues that nobody has ever used are fine."""
    site.tasks(NOTHING + "\n\n@app.task\nasync def gentle(): pass")
    (site.folder / "pyproject.toml").write_text('[tool.holdfast]\napp = "tasks:app"\n')
    flags = ("--drain", "--processes", "2", "--slots", "3", "--async-slots", "7", "--queues", "never,used")
    ids = []
    for _ in range(2):
        worker = site.start("worker", *flags, WORKER_ID="blue")
        assert worker.wait() == 0, worker.text()
        assert "2 tasks, queues never, used" in worker.text()
        assert "6 slots for functions and commands (2 processes of 3)" in worker.text()
        assert "7 slots for coroutines (1 process of 7)" in worker.text()
        ids += re.findall(r"worker (blue-[0-9a-f]{8})\"", worker.text())
    first, second = ids[0], ids[-1]
    assert first != second
    assert {row.id for row in site.store.workers()} == {first, second}


def database_at(folder: Path, name: str) -> str:
    return f"sqlite:///{folder / name}"


def test_app_decides_on_the_database_when_no_flag_does(site: Site) -> None:
    named, other = database_at(site.folder, "named.db"), database_at(site.folder, "environment.db")
    (site.folder / "tasks.py").write_text(f"{HEAD}\napp = App({named!r})\n\n{NOTHING}\n")
    with opened(named) as store:
        job = store.enqueue(NewJob(task="nothing")).id
        worker = site.worker("--drain", "--processes", "1", url="", DATABASE_URL=other)
        assert worker.wait() == 0, worker.text()
        assert store.job(job).state is State.SUCCEEDED
    assert f"store: {named}" in worker.text()
    assert not (site.folder / "environment.db").exists()


def test_flag_overrules_the_database_of_the_app_for_its_tasks_too(site: Site) -> None:
    """What a task enqueues goes where the worker works."""
    named = database_at(site.folder, "named.db")
    source = """
        @app.task
        def parent():
            child.enqueue()

        @app.task
        def child():
            note("ran")
    """
    site.tasks(source)
    path = site.folder / "tasks.py"
    path.write_text(path.read_text().replace("app = App()", f"app = App({named!r})\n{NOTE}"))
    site.enqueue("parent")
    site.drain("--processes", "1")
    assert site.counts() == {"succeeded": 2}
    assert len(notes(site, "ran")) == 1
    assert not (site.folder / "named.db").exists()


def test_queues_are_emptied_strictly_in_the_order_they_are_named(site: Site) -> None:
    site.tasks(NOTE + "\n@app.task\ndef nothing():\n    note(current().job.queue)\n    time.sleep(0.02)")
    for queue in ("last", "first", "unnamed", "middle") * 4:
        site.enqueue("nothing", queue=queue, priority=5 if queue == "last" else 0)
    site.drain("--processes", "1", "--queues", "first,middle,last")
    lines = (site.folder / "notes.txt").read_text().splitlines()
    assert [line.split()[0] for line in lines] == ["first"] * 4 + ["middle"] * 4 + ["last"] * 4
    assert site.counts() == {"succeeded": 12, "pending": 4}
