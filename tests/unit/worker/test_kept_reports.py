"""A report is kept until the store has answered it."""

from __future__ import annotations

from collections.abc import Iterator
from typing import cast

import pytest

from holdfast.domain.answers import Settled, Status
from holdfast.domain.errors import NotFound, StoreUnavailable
from holdfast.domain.outcome import Report, Succeeded, Usage
from holdfast.ports import Store
from holdfast.worker.reports import MAX_FAILED_IN_A_ROW, Answered, Ended, Round, Settling
from tests.unit.worker.test_in_flight import Bench
from tests.unit.worker.test_leases import book_of, claimed


@pytest.fixture
def bench() -> Iterator[Bench]:
    bench = Bench()
    yield bench
    bench.heartbeats.close()
    bench.reports.close()


def test_a_report_that_met_a_store_that_is_away_is_told_again(bench: Bench) -> None:
    held = bench.add()
    bench.end(held)
    bench.store.away = True
    bench.reports.step(1001.0)
    bench.answer("report", 1)
    bench.reports.step(1002.0)
    assert (len(bench.reports), bench.settled) == (1, [])
    bench.store.away = False
    bench.reports.step(1010.0)
    bench.answer("report", 2)
    bench.reports.step(1011.0)
    assert [answer.job_id for answer in bench.settled] == [held.job.job_id]
    assert len(bench.reports) == 0


class FailingStore:
    """Fails every batch, and single reports one after the other with these errors. It has no job any more."""

    def __init__(self, *errors: Exception | None) -> None:
        self._errors = iter(errors)
        self.sent: list[list[str]] = []

    def settle(self, reports: list[Report]) -> list[Settled]:
        self.sent.append([report.job_id for report in reports])
        if len(reports) > 1:
            raise ZeroDivisionError("in a batch")
        error = next(self._errors) if reports else None
        if error is not None:
            raise error
        return [Settled(report.job_id, report.attempt, Status.APPLIED) for report in reports]

    def job(self, job_id: str) -> None:
        raise NotFound(f"there is no job {job_id}")


def settle(store: FailingStore, batch: list[Ended]) -> Round:
    return Settling(lambda: cast(Store, store), "worker")(batch)


def ended(count: int, *, completed_in: bool = False) -> list[Ended]:
    _book, held = book_of(*(claimed(number) for number in range(count)))
    return [Ended(one, Succeeded(), Usage(), completed_in) for one in held]


def test_reports_after_several_failures_in_a_row_wait_and_are_not_sent() -> None:
    errors = [ZeroDivisionError(f"number {number}") for number in range(MAX_FAILED_IN_A_ROW)]
    store, batch = FailingStore(*errors), ended(MAX_FAILED_IN_A_ROW + 2)
    found = settle(store, batch)
    ids = [one.held.job.job_id for one in batch]
    assert store.sent == [ids, *([job_id] for job_id in ids[:MAX_FAILED_IN_A_ROW])]
    assert [(answer.settled.job_id, answer.settled.status) for answer in found.answers] == [
        (job_id, Status.BUSY) for job_id in ids
    ]
    problems = [answer.problem for answer in found.answers]
    assert all(f"number {number}" in str(problem) for number, problem in enumerate(problems[:MAX_FAILED_IN_A_ROW]))
    assert problems[MAX_FAILED_IN_A_ROW:] == [None, None], "of what was not sent nothing is known"
    assert found.error is errors[-1]


def test_failures_that_are_not_in_a_row_keep_no_report_from_being_sent() -> None:
    broken = ZeroDivisionError("broken")
    found = settle(FailingStore(broken, broken, None, broken, broken, None), ended(6))
    assert [answer.settled.status for answer in found.answers] == [Status.BUSY, Status.BUSY, Status.APPLIED] * 2


def test_reports_after_one_that_met_a_store_that_is_away_wait_and_are_not_sent() -> None:
    away = StoreUnavailable("away")
    store = FailingStore(away)
    found = settle(store, ended(3))
    assert len(store.sent) == 2
    assert [(answer.settled.status, answer.problem) for answer in found.answers] == [(Status.BUSY, None)] * 3
    assert found.error is away


def test_job_that_completed_itself_and_is_gone_since_needs_no_report() -> None:
    store, [one] = FailingStore(), ended(1, completed_in=True)
    found = settle(store, [one])
    assert found.answers == [Answered(Settled(one.held.job.job_id, 1, Status.APPLIED))]
    assert store.sent == [[]]
