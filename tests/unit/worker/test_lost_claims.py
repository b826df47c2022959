"""Jobs of a claim whose answer was lost are given back in every round of duties, before anything else is done."""

from __future__ import annotations

from typing import Any, cast

from holdfast.domain.answers import Settled, Status
from holdfast.domain.events import Events
from holdfast.domain.job import Claimed
from holdfast.domain.outcome import Released, Report
from holdfast.domain.timing import choose
from holdfast.periodic.duties import Duties, _Round
from holdfast.ports import Store
from tests.unit.worker.test_leases import claimed


class Losing:
    def __init__(self) -> None:
        self.settled: list[Report] = []

    def recover(self, _worker: str) -> list[Claimed]:
        return [claimed()]

    def settle(self, reports: list[Report]) -> list[Settled]:
        self.settled += reports
        return [Settled(report.job_id, report.attempt, Status.APPLIED) for report in reports]


def test_a_round_of_duties_gives_back_what_a_lost_answer_brought() -> None:
    store = Losing()
    duties = Duties(
        lambda: cast(Store, store),
        "w",
        lambda: choose(60.0),
        Events(),
        lambda: None,
        list,
        cast(Any, None),
        cast(Any, None),
    )
    duties._serve(_Round(reap=False, tasks=(), row=None))
    duties.close()
    lost = claimed()
    assert [(report.job_id, report.lease_token) for report in store.settled] == [(lost.job_id, lost.lease_token)]
    assert [type(report.outcome) for report in store.settled] == [Released]
