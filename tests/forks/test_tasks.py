"""Tasks that fork: the runner's own store and its link to the supervisor stay usable."""

from holdfast.domain.lifecycle import State
from tests.remote.fleet import Fleet
from tests.worker.site import Site

TASKS = """
    import multiprocessing, threading
    from holdfast.domain.job import NewJob

    def read(job_id):
        try:
            found = app.store.job(job_id).id
        except Exception as error:
            return f"{type(error).__name__}: {error}"
        return "" if found == job_id else "another job's row"

    @app.task
    def fork(ids: list[str]) -> dict:
        problems = set()
        def read_all():
            problems.update(read(job_id) for job_id in ids * 3)
        readers = [threading.Thread(target=read_all) for _ in range(5)]  # several connections are open afterwards
        for reader in readers:
            reader.start()
        for reader in readers:
            reader.join()
        ended = threading.Event()
        def go_on_reading():
            while not ended.is_set():
                problems.update(read(job_id) for job_id in ids)
        threads = [threading.Thread(target=go_on_reading) for _ in range(2)]
        for thread in threads:
            thread.start()
        with multiprocessing.get_context("fork").Pool(2) as pool:
            problems.update(pool.map_async(read, ids * 10, chunksize=1).get(120))
        if os.fork() == 0:
            print("printed by a child")
            sys.exit(len(read(ids[0])))
        problems.add(str(os.wait()[1]))
        ended.set()
        for thread in threads:
            thread.join()
        return {"runner": os.getpid(), "problems": sorted(problems - {"", "0"})}

    @app.task
    def read_and_enqueue(ids: list[str]) -> dict:
        more = app.store.enqueue(NewJob(task="noop"))
        problems = {read(job_id) for job_id in [*ids, more.id]}
        return {"runner": os.getpid(), "problems": sorted(problems - {""})}

    @app.task
    def noop() -> None:
        pass
"""


def fork_and_run_later_job(site: Site) -> None:
    ids = site.enqueue_many("noop", 10)
    first = site.wait_for_state(site.enqueue("fork", {"ids": ids}), State.SUCCEEDED, State.FAILED)
    later = site.enqueue("read_and_enqueue", {"ids": ids})
    second = site.wait_for_state(later, State.SUCCEEDED, State.FAILED)
    assert first.state is second.state is State.SUCCEEDED, (first, second)
    assert first.result is not None
    assert second.result is not None
    assert first.result["problems"] == second.result["problems"] == []
    assert first.result["runner"] == second.result["runner"], "the runner was replaced"


def test_task_with_multiprocessing_pool_leaves_runner_usable(site: Site) -> None:
    site.tasks(TASKS)
    site.worker("--processes", "1")
    fork_and_run_later_job(site)


def test_task_with_multiprocessing_pool_leaves_runner_usable_over_http(sqlite_fleet: Fleet) -> None:
    sqlite_fleet.tasks(TASKS)
    sqlite_fleet.remote_worker(sqlite_fleet.plane().url)
    fork_and_run_later_job(sqlite_fleet)
