"""The worker as the first process of its own little world: nothing that a task leaves behind stays."""

import signal

import psutil

from holdfast.domain.lifecycle import State
from tests.servers.waiting import gone
from tests.worker.site import Site, WorkerProcess

# Forks twice, each child in a session of its own, so that nobody waits for the grandchild; its pid is kept.
TASKS = """
def orphan(seconds):
    reading, writing = os.pipe()
    child = os.fork()
    if child == 0:
        os.setsid()
        if os.fork() == 0:
            os.write(writing, f"{os.getpid()}\\n".encode())
            os.close(writing)
            time.sleep(seconds)
        os._exit(0)
    os.waitpid(child, 0)
    os.close(writing)
    with os.fdopen(reading) as file:
        pid = int(file.readline())
    return pid

@app.task
def leaves_a_short_orphan():
    return orphan(0.2)

@app.task
def leaves_three_dead_ones():
    return [orphan(0) for _ in range(3)]

@app.task
def leaves_thirty_dead_ones():
    return [orphan(0) for _ in range(30)]

@app.task
def leaves_a_long_orphan():
    return orphan(300)
"""


def zombies(worker: WorkerProcess) -> list[psutil.Process]:
    below = psutil.Process(worker.pid).children(recursive=True)
    return [process for process in below if process.status() == psutil.STATUS_ZOMBIE]


def no_zombies(worker: WorkerProcess) -> bool:
    try:
        return zombies(worker) == []
    except psutil.NoSuchProcess:  # one that just ended
        return False


def run_what_leaves_orphans(site: Site, *flags: str) -> WorkerProcess:
    site.tasks(TASKS)
    worker = site.worker("--processes", "1", *flags)
    jobs = [site.enqueue(task) for task in ("leaves_a_short_orphan", "leaves_three_dead_ones")]
    for job in jobs:
        site.wait_for_state(job, State.SUCCEEDED)
    site.wait(lambda: gone(site.job(jobs[0]).result), "the orphan has ended")
    return worker


def test_orphans_that_outlive_their_runner_are_ended_and_waited_for_by_the_supervisor(sqlite_site: Site) -> None:
    worker = run_what_leaves_orphans(sqlite_site, "--recycle-jobs", "1")
    long = sqlite_site.enqueue("leaves_a_long_orphan")
    child = sqlite_site.wait_for_state(long, State.SUCCEEDED).result
    sqlite_site.wait(lambda: not psutil.pid_exists(child), "the orphan is gone with its runner, and buried")
    sqlite_site.wait(lambda: no_zombies(worker), "nobody is left unburied")
    assert worker.stop() == 0


def test_runner_whose_tasks_leave_many_dead_orphans_is_replaced_and_they_are_buried(sqlite_site: Site) -> None:
    worker = run_what_leaves_orphans(sqlite_site)
    [runner] = worker.runners()
    sqlite_site.enqueue("leaves_thirty_dead_ones")
    sqlite_site.wait(lambda: gone(runner.pid), "the runner is replaced")
    sqlite_site.wait(lambda: no_zombies(worker), "nobody is left unburied")
    sqlite_site.wait_for_counts(succeeded=3)  # the report of its last job may come later than its end


def test_nothing_a_task_started_outlives_the_worker(sqlite_site: Site) -> None:
    site = sqlite_site
    site.tasks(TASKS)
    worker = site.worker("--processes", "1")
    job = site.enqueue("leaves_a_long_orphan")
    child = site.wait_for_state(job, State.SUCCEEDED).result
    worker.send(signal.SIGTERM)
    assert worker.wait() == 0
    assert gone(child)
