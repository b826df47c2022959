"""A healthy run is clean, under every rule; and whatever is planted in it is found, under its own rule and no other."""

from collections.abc import Callable
from dataclasses import replace

import pytest

from holdfast.domain.history import HistoryRule
from holdfast.torture import notes
from holdfast.torture.checker import SENTENCES, Expectations, Rule, Ticking
from holdfast.torture.notes import read_notes
from holdfast.torture.results import Strike
from tests.torture.planted import EXPECTED, Run
from tests.torture.plants import PLANTED, call_a_lease_lost_that_is_held, leave_a_job_waiting
from tests.torture.test_checker_histories import DAMAGES

RECOVERED = Strike("kill", "worker-database-1", 3.0, 3.0, recovered_seconds=4.0, bound_seconds=5.0)
IDLE = Strike("idle-disconnects", "the way to the database", 100.0, 102.0)
# Nothing in the ledger speaks of these after a run that has come to rest.
AT_REST = {HistoryRule.RUNNING_WITHOUT_LEASE}


# A healthy run


def test_a_healthy_run_with_every_feature_is_clean(run: Run) -> None:
    assert run.judge(strikes=[RECOVERED, IDLE]).broken == ()


def test_every_rule_was_held_against_something(run: Run) -> None:
    checked = run.judge(strikes=[RECOVERED, IDLE]).rules_checked
    assert set(checked) == set(SENTENCES)
    assert {rule for rule, things in checked.items() if not things} == AT_REST


def test_a_rule_that_was_held_against_nothing_is_seen(run: Run) -> None:
    bare = replace(EXPECTED, poison={}, undecodable=frozenset(), sources=(), queues={}, schedules=())
    checked = run.judge(bare).rules_checked
    none = {rule for rule, things in checked.items() if not things}
    assert none == AT_REST | {
        "poison",
        "undecodable",
        "over_limit",
        "over_rate",
        "tick_missed",
        "idle_disconnect",
        "slow_recovery",
    }


def test_judging_changes_nothing(run: Run) -> None:
    assert run.judge() == run.judge()


# Planted


@pytest.mark.parametrize(("plant", "rule"), PLANTED.items(), ids=[plant.__name__ for plant in PLANTED])
def test_what_is_planted_is_found_under_its_own_rule(run: Run, plant: Callable[[Run], str], rule: str) -> None:
    job_id = plant(run)
    broken = run.broken()
    assert (broken.rule, broken.job_id) == (rule, job_id)


def test_a_lease_that_is_called_lost_and_still_held_is_an_untrue_answer(run: Run) -> None:
    job_id = call_a_lease_lost_that_is_held(run)
    broken = run.judge(replace(EXPECTED, drained=False)).broken
    assert [(each.rule, each.job_id) for each in broken] == [("untrue_answer", job_id)]


def test_what_has_not_ended_is_nobody_s_fault_in_a_run_that_was_broken_off(run: Run) -> None:
    leave_a_job_waiting(run)
    assert run.judge(replace(EXPECTED, drained=False)).broken == ()


def test_a_tick_that_is_not_on_record_was_missed(run: Run) -> None:
    """Three instants were left out and on record as such. They are not any more."""
    assert run.sql("DELETE FROM holdfast_schedule_ticks WHERE outcome = 'skipped'") == 1
    assert run.broken().rule == "tick_missed"


def test_a_schedule_that_has_stopped_firing_was_missed(run: Run) -> None:
    [schedule] = EXPECTED.schedules
    until = run.clock.now.timestamp() + 11
    expected = replace(EXPECTED, schedules=(replace(schedule, until=until),))
    assert run.broken(expected).rule == "tick_missed"


def test_a_schedule_that_never_fired_was_missed(run: Run) -> None:
    never = Ticking("never", "tick", 10.0, until=EXPECTED.ended_at)
    broken = run.broken(replace(EXPECTED, schedules=(*EXPECTED.schedules, never)))
    assert broken.rule == "tick_missed"
    assert "no tick at all" in broken.detail


def test_more_at_once_than_a_source_s_limit(run: Run) -> None:
    """The store was told two."""
    [source] = EXPECTED.sources
    broken = run.broken(replace(EXPECTED, sources=(replace(source, max_concurrent=1),)))
    assert broken.rule == "over_limit"
    assert "source shop: 2 at once" in broken.detail


def test_more_at_once_than_a_queue_s_limit(run: Run) -> None:
    broken = run.broken(replace(EXPECTED, queues={"default": 0}))
    assert broken.rule == "over_limit"
    assert "queue default: 1 at once" in broken.detail


def test_more_a_minute_than_a_source_s_rate(run: Run) -> None:
    [source] = EXPECTED.sources
    broken = run.broken(replace(EXPECTED, sources=(replace(source, rate_limit_per_minute=40),)))
    assert broken.rule == "over_rate"


@pytest.mark.parametrize("seconds", [5.5, None], ids=["late", "never"])
def test_a_recovery_over_its_bound(run: Run, seconds: float | None) -> None:
    slow = replace(RECOVERED, recovered_seconds=seconds)
    assert run.broken(strikes=[RECOVERED, slow]).rule == "slow_recovery"


def test_the_worst_recovery_is_told_of(run: Run) -> None:
    strikes = [replace(RECOVERED, target=f"worker-{seconds}", recovered_seconds=seconds) for seconds in (6, 9, 7)]
    broken = run.broken(strikes=strikes)
    assert "worker-9" in broken.detail
    assert "and 2 more" in broken.detail


def test_a_strike_with_nothing_to_recover_has_no_bound(run: Run) -> None:
    judged = run.judge(strikes=[replace(RECOVERED, bound_seconds=None, recovered_seconds=None)])
    assert judged.broken == ()
    assert judged.rules_checked[Rule.SLOW_RECOVERY] == 0


# Idle disconnects


def fail_an_enqueue(run: Run, seconds: float = 0.1) -> Expectations:
    """One second after the strike `IDLE` began."""
    run.note(notes.Unavailable([run.job("add")], "add", "database", seconds, "the session ended"))
    [noted] = [noted for noted in read_notes(run.notes_folder) if isinstance(noted.note, notes.Unavailable)]
    return replace(EXPECTED, struck_from=noted.at - IDLE.at - 1.0)


def test_enqueue_that_failed_during_an_idle_disconnect_is_found(run: Run) -> None:
    broken = run.broken(fail_an_enqueue(run), [IDLE])
    assert (broken.rule, broken.job_id) == ("idle_disconnect", run.job("add"))
    assert any("unavailable" in line for line in broken.history)


@pytest.mark.parametrize(
    "strikes",
    [
        [],
        [replace(IDLE, at=10.0, until=12.0)],
        [IDLE, replace(RECOVERED, at=95.0, until=95.0, bound_seconds=None)],
        [IDLE, replace(RECOVERED, at=50.0, until=60.0, recovered_seconds=35.0, bound_seconds=None)],
    ],
    ids=["no idle disconnect", "an earlier one", "another fault", "another fault that was not over"],
)
def test_enqueue_that_failed_for_another_cause_breaks_no_rule(run: Run, strikes: list[Strike]) -> None:
    assert run.judge(fail_an_enqueue(run), strikes).broken == ()


def test_enqueue_that_timed_out_breaks_no_rule(run: Run) -> None:
    assert run.judge(fail_an_enqueue(run, seconds=10.0), [IDLE]).broken == ()


def test_every_rule_is_planted_somewhere() -> None:
    elsewhere = {"idle_disconnect", "over_limit", "over_rate", "tick_missed", "slow_recovery", "running_without_lease"}
    assert {*PLANTED.values(), *map(str, DAMAGES), *elsewhere} == set(SENTENCES)
