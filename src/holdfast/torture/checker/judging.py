"""Judge a run: read its notes once and its ledger once, and what shows a broken rule a second time.

The ledger must be at rest, and the run's alone: what others do in it would be held against the run.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path

from holdfast.domain.history import HistoryRule
from holdfast.torture.checker.answers import check_answers, check_cancels
from holdfast.torture.checker.charges import check_charges, check_ended
from holdfast.torture.checker.disconnects import check_idle_disconnects
from holdfast.torture.checker.executions import check_executions, check_replaced, check_success
from holdfast.torture.checker.expectations import Expectations
from holdfast.torture.checker.findings import Findings
from holdfast.torture.checker.histories import check_history, check_reference
from holdfast.torture.checker.ledger import Ledger
from holdfast.torture.checker.life import Life
from holdfast.torture.checker.limits import Limits
from holdfast.torture.checker.load import Counting
from holdfast.torture.checker.origins import Origins
from holdfast.torture.checker.rules import Rule
from holdfast.torture.checker.ticks import Tick, check_ticks
from holdfast.torture.evidence import Evidence, Told, gather
from holdfast.torture.results import Broken, Load, Second, Strike
from holdfast.torture.shortest import shown
from holdfast.wiring.sql import open_store


@dataclass(frozen=True, slots=True)
class Judged:
    """At most one `Broken` a rule: the shortest history that shows it, and how many more there are."""

    broken: tuple[Broken, ...]
    load: Load
    timeline: tuple[Second, ...]
    rules_checked: dict[str, int]


def judge(url: str, notes: Path, expected: Expectations, strikes: Sequence[Strike]) -> Judged:
    store = open_store(url, create=False, notify=False)
    try:
        return _judge(Ledger(store), notes, expected, strikes)
    finally:
        store.close()


def _judge(ledger: Ledger, notes: Path, expected: Expectations, strikes: Sequence[Strike]) -> Judged:
    evidence, found, counting = gather(notes), Findings(), Counting(expected)
    ticks = ledger.ticks()
    _check_lives(ledger, evidence, ticks, counting, found)
    vanished = _check_references(ledger, found)
    for job_id, told in evidence.jobs.items():
        if job_id not in vanished:
            _check_absent(job_id, told, found)
    check_ticks(ticks, expected.schedules, ledger.anchors(), found)
    check_idle_disconnects(evidence.unavailable, strikes, expected.struck_from, found)
    check_recoveries(strikes, found)
    load = counting.load(evidence.acknowledged, evidence.executions, ledger.count_refusals(), len(ticks))
    broken = shown(found.suspects(), ledger.events, notes, expected.began_at)
    return Judged(broken, load, counting.timeline(), found.rules_checked())


def _check_lives(
    ledger: Ledger, evidence: Evidence, ticks: Sequence[Tick], counting: Counting, found: Findings
) -> None:
    """What was told of a job is let go with it: what is left in the end is of jobs that the ledger does not have."""
    expected = counting.expected
    limits = Limits(expected)
    origins = Origins(expected, {tick.job_id for tick in ticks if tick.job_id is not None}, ledger.deliveries())
    for life in ledger.lives():
        told = evidence.jobs.pop(life.job_id, None)
        if life.task is None and told is not None:
            life.task = told.task
        counting.feed(life)
        limits.feed(life)
        origins.feed(life, told, found)
        check_life(life, told or Told(), expected, found)
    limits.check(found)
    origins.finish(ledger.known(origins.replays.values()), found)


def check_life(life: Life, told: Told, expected: Expectations, found: Findings) -> None:
    found.held(Rule.LOST, int(told.acknowledged))
    if not check_history(life, found):
        return
    check_answers(life, told, found)
    check_cancels(life, found)
    check_executions(life, told, found)
    check_success(life, told, expected, found)
    check_replaced(life, told, found)
    check_charges(life, told, expected, found)
    check_ended(life, expected, found)


def _check_absent(job_id: str, told: Told, found: Findings) -> None:
    """Of what was only intended there need not be anything, and then nothing was given, reported or run either."""
    if told.acknowledged:
        found.held(Rule.LOST)
        found.add(Rule.LOST, f"a job of {told.task} was accepted, and it has no row and no history", job_id)
        return
    check_answers(Life(job_id, told.task), told, found)
    check_executions(Life(job_id, told.task), told, found)


def _check_references(ledger: Ledger, found: Findings) -> set[str]:
    """The jobs that something speaks of, and that are gone."""
    found.held(HistoryRule.VANISHED, ledger.count_references())
    missing = ledger.missing()
    through = ledger.retired_through() if missing else None
    for reference in missing:
        check_reference(reference, through, found)
    return {reference.job_id for reference in missing}


def check_recoveries(strikes: Sequence[Strike], found: Findings) -> None:
    """The worst of them is shown: there is no history that tells when a heartbeat was missed."""
    for strike in strikes:
        if strike.bound_seconds is None:
            continue
        found.held(Rule.SLOW_RECOVERY)
        taken = strike.recovered_seconds
        if taken is not None and taken <= strike.bound_seconds:
            continue
        what = strike.recovered_what or "what it hit"
        spoken = f"{what} was never well again" if taken is None else f"{what} took {taken:.1f} s"
        detail = (
            f"{strike.kind} of {strike.target} at +{strike.at:.1f} s: {spoken},"
            f" and {strike.bound_seconds:.1f} s is the bound"
        )
        found.add(Rule.SLOW_RECOVERY, detail, length=-int(1e9 if taken is None else taken * 1000))
