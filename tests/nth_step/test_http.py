"""Whatever question to a control plane gets lost on the way, or its answer: asked again, it is done once."""

from collections.abc import Callable, Iterator
from contextlib import closing
from pathlib import Path
from shutil import copy
from typing import TypeVar
from urllib.parse import urlsplit

import pytest

from holdfast.domain.answers import Status
from holdfast.domain.errors import StoreUnavailable
from holdfast.domain.job import NewJob
from holdfast.domain.outcome import Failed, JobError, Outcome, Released, Succeeded
from holdfast.stores.ids import new_ids
from holdfast.wiring.http import open_control_plane
from tests.nth_step.cutting import CuttingProxy
from tests.nth_step.fault import Fault, Moment, Strike
from tests.nth_step.grounds import assert_verified
from tests.nth_step.scenarios import beats, reports
from tests.nth_step.trying import for_each_step
from tests.serve.grounds import Served, serving
from tests.servers.waiting import DEADLINE_SECONDS

TRIES = 3
Answer = TypeVar("Answer")


@pytest.fixture(scope="module")
def served(tmp_path_factory: pytest.TempPathFactory, migrated_file: Path) -> Iterator[Served]:
    path = tmp_path_factory.mktemp("served") / "jobs.db"
    copy(migrated_file, path)
    with serving(f"sqlite:///{path}") as served:
        yield served


@pytest.fixture
def proxy(served: Served) -> Iterator[CuttingProxy]:
    address = urlsplit(served.url)
    with CuttingProxy((address.hostname or "", address.port or 0), Fault()) as proxy:
        yield proxy


@pytest.mark.parametrize(
    ("outcome", "ending"),
    [
        (Succeeded({"sum": 3}), "succeeded"),
        pytest.param(Failed(JobError("boom", "it broke")), "retry_scheduled", marks=pytest.mark.long),
        pytest.param(Released("deploy"), "released", marks=pytest.mark.long),
    ],
    ids=lambda given: given if isinstance(given, str) else "",
)
def test_a_job_lives_once_over_http(served: Served, proxy: CuttingProxy, outcome: Outcome, ending: str) -> None:
    def attempt(step: int, moment: Moment) -> bool:
        ids = live(served, proxy, Strike(step, moment), outcome)
        for job_id in ids:
            assert [event.event for event in served.store.events(job_id)] == ["enqueued", "claimed", ending]
            assert served.store.refusals(job_id) == []
        assert_verified(served.store)
        return proxy.fault.disarm()

    assert for_each_step(attempt) >= 4


def live(served: Served, proxy: CuttingProxy, strike: Strike, outcome: Outcome) -> list[str]:
    """Enqueue, claim, renew, report: each asked again, with the same ids and tokens, until it was answered."""
    ids = new_ids(3)
    token = served.new_token("client", "worker")
    url = "http://{}:{}".format(*proxy.address)
    with closing(open_control_plane(url, token, timeout_seconds=DEADLINE_SECONDS)) as store:
        proxy.fault.arm(strike)
        queue = f"queue-{ids[0]}"
        asked(lambda: store.enqueue_many([NewJob(task="add", id=job_id, queue=queue) for job_id in ids]))
        found = asked(lambda: store.claim("ann", 3, [queue], request_id=f"request-{ids[0]}"))
        assert sorted(job.job_id for job in found) == sorted(ids)
        assert {answer.status for answer in asked(lambda: store.heartbeat(beats(found)))} == {Status.APPLIED}
        answers = asked(lambda: store.settle(reports(found, outcome)))
        assert {answer.status for answer in answers} <= {Status.APPLIED, Status.REPLAYED}
    proxy.wait_until_quiet()
    return ids


def asked(question: Callable[[], Answer]) -> Answer:
    for _ in range(TRIES - 1):
        try:
            return question()
        except StoreUnavailable:
            continue
    return question()
