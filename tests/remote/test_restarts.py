"""A control plane that is killed and started again under load: no job is lost or done twice, and no worker restarts."""

from __future__ import annotations

from itertools import count

import pytest

from holdfast.domain.job import NewJob
from holdfast.domain.lifecycle import State
from holdfast.wiring.http import open_control_plane
from tests.remote.fleet import Fleet
from tests.servers.waiting import DEADLINE_SECONDS

TASKS = """
    @app.task
    def note(number: int) -> int:
        with open("notes", "a") as file:
            file.write(f"{number}\\n")
        time.sleep(0.05)
        return number
"""
BATCH = 20


def killed_under_load(fleet: Fleet, times: int, workers: int) -> None:
    plane = fleet.plane()
    fleet.tasks(TASKS)
    running = [fleet.remote_worker(plane.url, LEASE_SECONDS="600") for _ in range(workers)]
    print(f"control plane {plane.pid}, workers {[worker.pid for worker in running]}")
    client = open_control_plane(plane.url, fleet.token, timeout_seconds=DEADLINE_SECONDS)
    numbers = count()
    for _restart in range(times):
        made = client.enqueue_many(
            [NewJob(task="note", payload={"number": next(numbers)}, lease_seconds=600.0) for _ in range(BATCH)]
        )
        fleet.wait(lambda ids=made: _is_done(fleet, ids[0].id), "the first of them is done")  # type: ignore[misc]
        plane.kill()
        plane.begin()  # whoever asks meanwhile finds nobody
        plane.wait_until_ready()
    client.close()

    fleet.wait_for_counts(succeeded=times * BATCH)

    assert all(worker.running for worker in running)
    assert fleet.charged() == (0, 0)
    assert fleet.count_events("succeeded") == times * BATCH
    assert sorted(map(int, (fleet.folder / "notes").read_text().split())) == list(range(times * BATCH))
    assert [worker.stop() for worker in running] == [0] * workers


def _is_done(fleet: Fleet, job_id: str) -> bool:
    return fleet.job(job_id).state is State.SUCCEEDED


def test_killed_twice_under_load(sqlite_fleet: Fleet) -> None:
    killed_under_load(sqlite_fleet, times=2, workers=1)


@pytest.mark.long
@pytest.mark.timeout(600)
def test_killed_twenty_times_under_load(fleet: Fleet) -> None:
    killed_under_load(fleet, times=20, workers=3)
