"""An answer is lost after the control plane has committed; asked again, another control plane gives the same."""

from __future__ import annotations

import socket
import threading
import time
import uuid
from collections.abc import Iterator
from urllib.parse import urlsplit

import pytest

from holdfast.domain.answers import Beat, Status
from holdfast.domain.errors import StoreUnavailable
from holdfast.domain.job import NewJob
from holdfast.domain.outcome import Failed, JobError, Outcome, Released, Report, Succeeded
from holdfast.remote.store import RemoteStore
from holdfast.serve.options import ServeSettings
from holdfast.serve.running import ControlPlane
from holdfast.wiring.http import open_control_plane
from tests.chaos.proxy import ForgetfulProxy
from tests.remote.proxy import Crossing
from tests.serve.grounds import Served
from tests.servers.waiting import DEADLINE_SECONDS

OUTCOMES: dict[str, Outcome] = {
    "complete": Succeeded({"sum": 3}),
    "fail": Failed(JobError("boom", "it broke", retryable=False)),
    "release": Released("deploy"),
}


@pytest.fixture(scope="module")
def second(served: Served) -> Iterator[str]:
    control = ControlPlane(ServeSettings(database_url=served.database_url, port=0, duties=False))
    control.start()
    yield control.url
    control.stop()


@pytest.fixture
def crossing(served: Served, second: str) -> Iterator[Crossing]:
    with Crossing(served.url, second) as crossing:
        yield crossing


@pytest.fixture
def store(served: Served, crossing: Crossing) -> Iterator[RemoteStore]:
    store = open_control_plane(crossing.url, served.new_token("worker", "client"), timeout_seconds=DEADLINE_SECONDS)
    yield store
    store.close()


def enqueue(served: Served, count: int) -> tuple[str, list[str]]:
    queue = f"queue-{uuid.uuid4().hex[:12]}"
    return queue, served.enqueue(queue, count)


def history(served: Served, job_id: str) -> list[str]:
    return [event.event for event in served.store.events(job_id)]


def test_a_claim_brings_the_same_jobs_and_no_second_lease(
    served: Served, crossing: Crossing, store: RemoteStore
) -> None:
    queue, ids = enqueue(served, 5)
    crossing.lose_answer_to(b"/internal/worker/claim")

    jobs = store.claim("ann", 3, [queue])

    assert crossing.lost == 1
    assert [job.job_id for job in jobs] == ids[:3]
    assert [history(served, job_id) for job_id in ids] == [["enqueued", "claimed"]] * 3 + [["enqueued"]] * 2
    beats = [Beat(job.job_id, job.attempt, job.lease_token, "ann") for job in jobs]
    assert [answer.status for answer in store.heartbeat(beats)] == [Status.APPLIED] * 3


@pytest.mark.parametrize("verb", OUTCOMES)
def test_a_report_is_recorded_once(served: Served, crossing: Crossing, store: RemoteStore, verb: str) -> None:
    queue, [job_id] = enqueue(served, 1)
    [job] = store.claim("ann", 1, [queue])
    crossing.lose_answer_to(b"/internal/worker/reports")
    report = Report(job.job_id, job.attempt, job.lease_token, OUTCOMES[verb], "ann")

    [answer] = store.settle([report])
    [again] = store.settle([report])

    assert crossing.lost == 1
    assert (answer.status, again.status) == (Status.REPLAYED, Status.REPLAYED)
    assert (
        (answer.event, answer.state)
        == (again.event, again.state)
        == (
            history(served, job_id)[-1],
            served.store.job(job_id).state,
        )
    )
    assert len(history(served, job_id)) == 3


def test_an_enqueue_makes_one_job_and_says_that_it_did(served: Served, crossing: Crossing, store: RemoteStore) -> None:
    queue = f"queue-{uuid.uuid4().hex[:12]}"
    crossing.lose_answer_to(b"/api/v1/jobs")

    made = store.enqueue(NewJob(task="send", queue=queue))

    assert (crossing.lost, made.created) == (1, True)
    assert [job.id for job in served.store.jobs(queue=queue).items] == [made.id]


class LosingAll(ForgetfulProxy):
    """Every answer to a claim, until it is mended."""

    is_mended = False

    def is_to_be_lost(self, question: bytes) -> bool:
        return not self.is_mended and b"/internal/worker/claim" in question


class Vanishing(ForgetfulProxy):
    """Loses one answer, and is then not there any more until it is begun again."""

    def is_to_be_lost(self, question: bytes) -> bool:
        if not super().is_to_be_lost(question):
            return False
        self._listener.shutdown(socket.SHUT_RDWR)
        self._listener.close()
        return True

    def begin_again(self) -> None:
        port = urlsplit(self.url).port
        self._listener = socket.create_server(("127.0.0.1", port or 0))
        threading.Thread(target=self._accept, daemon=True).start()


class JumpingClock:
    """The clock of claims. A pause between two tries lasts as long as a caller waits, and takes no time."""

    def __init__(self) -> None:
        self._ahead = 0.0

    def monotonic(self) -> float:
        return time.monotonic() + self._ahead

    def sleep(self, _seconds: float) -> None:
        self._ahead += DEADLINE_SECONDS


@pytest.fixture
def gives_up_soon(monkeypatch: pytest.MonkeyPatch) -> None:
    """A claim gives up at its second pause. Each request may take long: a slow machine sends it all the same."""
    monkeypatch.setattr("holdfast.remote.claims.time", JumpingClock())


@pytest.mark.usefixtures("gives_up_soon")
def test_a_claim_is_kept_also_when_the_control_plane_was_gone_at_the_second_try(served: Served) -> None:
    """The second try says that it never left; the first one did."""
    queue, ids = enqueue(served, 2)
    with Vanishing(served.url) as way:
        store = open_control_plane(way.url, served.tokens["worker"], timeout_seconds=DEADLINE_SECONDS)
        way.lose_answer_to(b"/internal/worker/claim")
        with pytest.raises(StoreUnavailable):
            store.claim("ann", 2, [queue])
        way.begin_again()

        assert [job.job_id for job in store.recover("ann")] == ids
        store.close()


@pytest.mark.usefixtures("gives_up_soon")
def test_a_claim_whose_caller_gave_up_is_recovered(served: Served) -> None:
    queue, ids = enqueue(served, 2)
    with LosingAll(served.url) as way:
        store = open_control_plane(way.url, served.tokens["worker"], timeout_seconds=DEADLINE_SECONDS)
        with pytest.raises(StoreUnavailable):
            store.claim("ann", 2, [queue])
        way.is_mended = True

        recovered = store.recover("ann")

        assert [job.job_id for job in recovered] == ids
        assert [history(served, job_id) for job_id in ids] == [["enqueued", "claimed"]] * 2
        reports = [Report(job.job_id, job.attempt, job.lease_token, Released(), "ann") for job in recovered]
        assert [answer.ok for answer in store.settle(reports)] == [True] * 2
        assert store.recover("ann") == []
        store.close()


class StoppedProcessClock:
    """Each reading is an hour later than the one before, as if the process had been stopped in between."""

    def __init__(self) -> None:
        self._readings = 0

    def monotonic(self) -> float:
        self._readings += 1
        return 3600.0 * self._readings


def test_request_of_a_process_that_was_stopped_for_long_is_still_sent(
    served: Served, monkeypatch: pytest.MonkeyPatch
) -> None:
    store = open_control_plane(served.url, served.tokens["client"])
    monkeypatch.setattr("holdfast.remote.line.time", StoppedProcessClock())
    monkeypatch.setattr("holdfast.remote.line.SHORTEST_TRY_SECONDS", DEADLINE_SECONDS)
    assert store.announced("unknown") is None
    store.close()
