"""Runners are replaced when they have served enough: nobody is interrupted for it, and nobody pays for it."""

from collections import Counter

from holdfast.domain.lifecycle import State
from tests.worker.site import Site

TASKS = """
    kept = []

    @app.task
    def steady() -> int:
        time.sleep(0.02)
        return os.getpid()

    @app.task
    def quick() -> int:
        return os.getpid()

    @app.task
    async def coroutine() -> int:
        await asyncio.sleep(0.02)
        return os.getpid()

    @app.task
    def leak() -> int:
        kept.append(b"x" * 150_000_000)
        return os.getpid()
"""


def results(site: Site, jobs: list[str]) -> list[int]:
    """Which process each of them ran in; none was lost, charged or run twice."""
    found = []
    for job_id in jobs:
        job = site.wait_for_state(job_id, State.SUCCEEDED)
        assert (job.failures, job.crashes) == (0, 0)
        assert set(site.event_names(job_id)) <= {"enqueued", "claimed", "released", "succeeded"}
        found.append(job.result)
    return found


def test_a_runner_is_replaced_after_so_many_jobs(site: Site) -> None:
    site.tasks(TASKS)
    worker = site.worker("--processes", "1", "--recycle-jobs", "5", "--async-slots", "2")
    steady = Counter(results(site, site.enqueue_many("steady", 12)))
    assert len(steady) >= 3
    assert max(steady.values()) <= 5
    coroutines = Counter(results(site, site.enqueue_many("coroutine", 12)))
    assert len(coroutines) >= 2
    quick = Counter(results(site, site.enqueue_many("quick", 100)))  # with jobs claimed ahead when it is time to go
    assert len(quick) >= 2
    steady_ones = {*steady} - {*quick}
    site.wait_gone(steady_ones, "those replaced have ended")
    assert worker.running


def test_a_runner_is_replaced_when_it_has_grown_so_large(site: Site) -> None:
    site.tasks(TASKS)
    worker = site.worker("--processes", "1", "--recycle-memory", "120MB")
    small = results(site, site.enqueue_many("steady", 2))
    assert len(set(small)) == 1, "nobody is replaced without a reason"
    large = results(site, site.enqueue_many("leak", 3))
    assert len(set(large)) == 3
    site.wait_gone(large, "those replaced have ended")
    assert worker.running
