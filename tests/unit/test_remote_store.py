"""Claims of more jobs than one response holds are split into several requests."""

from __future__ import annotations

from typing import Any, cast

import pytest

from holdfast.domain.job import Claimed
from holdfast.domain.wire import claimed_to_json
from holdfast.remote.claims import CLAIM, MOST_AT_ONCE
from holdfast.remote.leases import Leases
from holdfast.remote.line import Line
from holdfast.remote.store import RemoteStore
from tests.servers.waiting import DEADLINE_SECONDS
from tests.unit.worker.test_leases import claimed


class Plane:
    """A control plane with so many jobs; each response also names a time, which differs."""

    def __init__(self, jobs: int) -> None:
        self.waiting = [claimed(number) for number in range(jobs)]
        self.requests: list[dict[str, Any]] = []

    def post(self, path: str, body: dict[str, Any], *, patience: float) -> dict[str, Any]:
        assert (path, patience) == (CLAIM, 0.0)
        self.requests.append(body)
        found, self.waiting = self.waiting[: body["limit"]], self.waiting[body["limit"] :]
        return {"jobs": [claimed_to_json(job) for job in found], "again_in_seconds": float(len(self.requests))}


@pytest.fixture
def leases(monkeypatch: pytest.MonkeyPatch) -> Leases:
    leases = Leases()
    monkeypatch.setattr("holdfast.remote.store.OF_THIS_PROCESS", leases)
    return leases


def store_of(plane: Plane) -> RemoteStore:
    return RemoteStore(lambda _connections: cast(Line, plane), 1, DEADLINE_SECONDS, lambda _count: [])


@pytest.mark.parametrize(
    ("waiting", "limit", "limits"),
    [
        (3 * MOST_AT_ONCE, MOST_AT_ONCE, [500]),
        (3 * MOST_AT_ONCE, 2 * MOST_AT_ONCE, [500, 500]),
        (3 * MOST_AT_ONCE, MOST_AT_ONCE + 7, [500, 7]),
        (2 * MOST_AT_ONCE + 7, 5 * MOST_AT_ONCE, [500, 500, 500]),
        (MOST_AT_ONCE - 1, 5 * MOST_AT_ONCE, [500]),
        (MOST_AT_ONCE, 5 * MOST_AT_ONCE, [500, 500]),
    ],
)
def test_large_claim_is_repeated_until_its_limit_or_a_response_that_is_not_full(
    leases: Leases, waiting: int, limit: int, limits: list[int]
) -> None:
    plane = Plane(waiting)
    expected = plane.waiting[:limit]

    found = store_of(plane).claim("ann", limit, ["a"], ["b"])

    assert [request["limit"] for request in plane.requests] == limits
    assert _ids(found) == _ids(expected)
    assert found.again_in == 1.0, "of the first response"
    assert len({request["request_id"] for request in plane.requests}) == len(limits)
    assert {(request["worker_id"], *request["streams"], *request["tasks"]) for request in plane.requests} == {
        ("ann", "a", "b")
    }
    assert len(leases.shown(job.attempt_id for job in expected)) == len(expected)


@pytest.mark.usefixtures("leases")
def test_claim_with_a_request_id_of_the_callers_is_one_request() -> None:
    plane = Plane(2 * MOST_AT_ONCE)

    found = store_of(plane).claim("ann", 2 * MOST_AT_ONCE, request_id="5" * 32)

    assert [request["request_id"] for request in plane.requests] == ["5" * 32]
    assert len(found) == MOST_AT_ONCE


def _ids(jobs: list[Claimed]) -> list[str]:
    return [job.job_id for job in jobs]
