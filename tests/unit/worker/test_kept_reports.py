"""A report is kept until the store has answered it."""

from __future__ import annotations

from collections.abc import Iterator

import pytest

from tests.unit.worker.test_in_flight import Bench


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
