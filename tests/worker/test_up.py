"""`holdfast up MODULE:APP --reload`: new code runs as soon as it is saved, and what runs is left to finish."""

import os
import time

from holdfast.domain.lifecycle import State
from tests.worker.site import Site, WorkerProcess


def save(site: Site, source: str) -> None:
    """As an editor does; with a time of change that differs even where the clock of the file system is coarse."""
    path = site.folder / "tasks.py"
    site.tasks(source)
    stamp = time.time_ns()
    os.utime(path, ns=(stamp, stamp))


def answering(word: str) -> str:
    return f"@app.task\ndef answer():\n    return {word!r}\n"


def result(site: Site) -> object:
    return site.wait_for_state(site.enqueue("answer"), State.SUCCEEDED, State.FAILED).result


def wait_for_result(site: Site, word: str) -> None:
    """The change is looked for twice a second, so a job or two may still meet the old code."""
    site.wait(lambda: result(site) == word, f"the answer is {word}")


def pids(worker: WorkerProcess) -> set[int]:
    return {runner.pid for runner in worker.runners()}


def test_saved_code_runs_without_a_restart_and_a_mistake_is_waited_out(sqlite_site: Site) -> None:
    site = sqlite_site
    save(site, answering("old"))
    worker = site.up("--reload", "--processes", "1")
    assert result(site) == "old"
    save(site, answering("new"))
    wait_for_result(site, "new")
    save(site, "def broken(:")
    worker.wait_for_log("SyntaxError")
    waiting = site.enqueue("answer")
    worker.wait_for_log("runner ended by itself")
    assert worker.running
    assert site.job(waiting).state is State.PENDING
    save(site, answering("mended"))
    assert site.wait_for_state(waiting, State.SUCCEEDED).result == "mended"
    wait_for_result(site, "mended")
    assert site.charged() == (0, 0)
    assert worker.stop() == 0


SLOW = """
@app.task
def slow():
    Path(__file__).with_name("slow_started").write_text("yes")
    while not Path(__file__).with_name("go").exists():
        time.sleep(0.02)
    return "finished by the code it began with"

"""


def test_running_job_survives_the_reload_and_finishes(sqlite_site: Site) -> None:
    site = sqlite_site
    save(site, SLOW + answering("old"))
    worker = site.up("--reload", "--processes", "1")
    slow = site.enqueue("slow")
    site.wait_for_file("slow_started")
    before = pids(worker)
    save(site, answering("new"))  # without the task that runs just now
    wait_for_result(site, "new")
    assert before < pids(worker), "the runner of the old code is still at work"
    (site.folder / "go").write_text("go")
    assert site.wait_for_state(slow, State.SUCCEEDED).result == "finished by the code it began with"
    assert site.event_names(slow) == ["enqueued", "claimed", "succeeded"]
    site.wait(lambda: not before & pids(worker), "the old runner has ended")
    assert worker.stop() == 0
