"""What ends with a lease ends before it does: nothing is started under one that is over, and what runs is dead before
its job is given back."""

from __future__ import annotations

from types import SimpleNamespace
from typing import cast

import pytest

from holdfast.domain.manifest import TaskInfo
from holdfast.domain.outcome import Released
from holdfast.domain.timing import choose
from holdfast.runners.process import Exit
from holdfast.worker.leases import LeaseBook
from holdfast.worker.supervisor import Supervisor
from tests.unit.worker.test_leases import claimed
from tests.unit.worker.test_review import Stage


@pytest.mark.parametrize("lease", [1.0, 10.0, 60.0, 3600.0])
def test_a_runner_is_warned_and_then_killed_while_its_lease_still_holds(lease: float) -> None:
    held = LeaseBook(choose(60.0)).add(claimed(lease=lease), TaskInfo("x"), 1000.0)
    assert 1000.0 < held.lease_warning_at < held.lease_kill_at < 1000.0 + lease


def test_a_job_is_given_back_after_its_runner_is_dead_and_not_when_it_was_told_to_die() -> None:
    stage = Stage()
    runner = stage.runner()
    held = stage.start(claimed(), runner)
    stage.runs.enforce(2000.0)
    assert (runner.killed, stage.reported) == ("lease lost", {}), "whoever claims it now would run it beside us"
    stage.ended(runner, Exit(None, 9), 2000.0)
    assert isinstance(stage.reported[held.id], Released)


def test_a_claim_that_took_longer_than_its_leases_is_not_dealt_to_a_runner(monkeypatch: pytest.MonkeyPatch) -> None:
    stage = Stage()
    dealt: list[int] = []
    monkeypatch.setattr(stage.runs.hand, "deal", lambda: dealt.append(len(stage.runs.hand)))
    supervisor = cast(Supervisor, SimpleNamespace(runs=stage.runs, _stepped_at=1005.0))
    Supervisor._taken(supervisor, [claimed(lease=1.0)], sent_at=1000.0)
    assert dealt == [0]
    assert [type(outcome) for outcome in stage.reported.values()] == [Released]
