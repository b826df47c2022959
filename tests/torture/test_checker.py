"""A healthy run is clean, under every rule; and whatever is planted in it is found, under its own rule and no other."""

from collections.abc import Callable
from dataclasses import replace
from typing import Any
from uuid import uuid4

import pytest
from sqlalchemy import text

from holdfast.domain.history import HistoryRule
from holdfast.domain.job import Claimed, NewJob
from holdfast.domain.outcome import Released, Succeeded
from holdfast.torture import notes
from holdfast.torture.checker import SENTENCES, Rule, Ticking
from holdfast.torture.results import Strike
from tests.torture.planted import BROKEN, CONTRACT, EXPECTED, HOPELESS, HTTP, KILLED, Healthy, Run, said

RECOVERED = Strike("kill", "worker-database-1", 3.0, 3.0, recovered_seconds=4.0, bound_seconds=5.0)
# Nothing in the ledger speaks of these after a run that has come to rest.
AT_REST = {HistoryRule.RUNNING_WITHOUT_LEASE}


# A healthy run


def test_a_healthy_run_with_every_feature_is_clean(run: Run) -> None:
    assert run.judge(strikes=[RECOVERED]).broken == ()


def test_every_rule_was_held_against_something(run: Run) -> None:
    checked = run.judge(strikes=[RECOVERED]).rules_checked
    assert set(checked) == set(SENTENCES)
    assert {rule for rule, things in checked.items() if not things} == AT_REST


def test_a_rule_that_was_held_against_nothing_is_seen(run: Run) -> None:
    bare = replace(EXPECTED, poison={}, sources=(), queues={}, schedules=())
    checked = run.judge(bare).rules_checked
    none = {rule for rule, things in checked.items() if not things}
    assert none == AT_REST | {"poison", "over_limit", "over_rate", "tick_missed", "slow_recovery"}


def test_judging_changes_nothing(run: Run) -> None:
    assert run.judge() == run.judge()


# Planted: what was accepted


def _lose_everything(run: Run, job_id: str) -> None:
    assert run.sql("DELETE FROM holdfast_jobs WHERE id = :id", id=job_id)
    assert run.sql("DELETE FROM holdfast_events WHERE job_id = :id", id=job_id)


def accept_what_is_not_there(run: Run) -> str:
    job_id = str(uuid4())
    run.note(notes.Intended([job_id], "add"), notes.Acknowledged([job_id], "add", "http"))
    return job_id


def lose_a_job(run: Run) -> str:
    _lose_everything(run, run.job("add"))
    return run.job("add")


def leave_a_job_waiting(run: Run) -> str:
    return run.enqueue("add")


def leave_a_job_running(run: Run) -> str:
    return run.begin(run.enqueue("add")).job_id


def make_a_job_that_nobody_wanted(run: Run) -> str:
    job_id = run.store.enqueue(NewJob(task="add")).id
    run.run(job_id)
    return job_id


def deliver_what_did_not_happen(run: Run) -> str:
    [[payload]] = _rows(run, "SELECT payload FROM holdfast_jobs WHERE task = 'holdfast.webhook' LIMIT 1")
    job_id = str(uuid4())
    run.sql("INSERT INTO holdfast_jobs (id, task, payload) VALUES (:id, 'holdfast.webhook', :p)", id=job_id, p=payload)
    run.sql(
        "INSERT INTO holdfast_events (job_id, seq, at, event, to_state, attempt)"
        " SELECT id, 1, updated_at, 'enqueued', 'pending', 0 FROM holdfast_jobs WHERE id = :id",
        id=job_id,
    )
    return job_id


def replay_what_is_not_there(run: Run) -> str:
    job_id = run.store.enqueue(NewJob(task="add", replay_of=str(uuid4()))).id
    run.run(job_id)
    return job_id


# Planted: what somebody was told


def _never_reported(run: Run) -> Claimed:
    """The lease is lost, and somebody else brings the job to its end."""
    claimed = run.give(run.enqueue("contract"))
    run.lose_lease()
    run.run(claimed.job_id)
    return claimed


def say_yes_to_a_report_and_forget_it(run: Run) -> str:
    claimed = _never_reported(run)
    run.note(said(claimed, "release", True))
    return claimed.job_id


def say_yes_and_record_something_else(run: Run) -> str:
    claimed = run.give(run.enqueue("contract"))
    run.settle(claimed, Released())
    run.note(said(claimed, "fail", True))
    run.run(claimed.job_id)
    return claimed.job_id


def say_yes_under_another_attempt(run: Run) -> str:
    claimed = run.give(run.enqueue("contract"))
    run.settle(claimed, Succeeded())
    run.note(replace(said(claimed, "complete", True), attempt=2))
    return claimed.job_id


def give_a_lease_that_is_not_on_record(run: Run) -> str:
    run.note(notes.Claimed(run.job("contract"), 1, "f" * 32, CONTRACT))
    return run.job("contract")


def give_a_lease_in_another_s_name(run: Run) -> str:
    claimed = run.claim(run.enqueue("contract"), "contract-2")
    lease = said(claimed, "complete", True).lease
    run.note(notes.Claimed(claimed.job_id, 1, lease, CONTRACT))
    run.settle(claimed, Succeeded())
    return claimed.job_id


def give_a_job_that_is_not_there(run: Run) -> str:
    job_id = str(uuid4())
    run.note(notes.Claimed(job_id, 1, "f" * 32, CONTRACT))
    return job_id


def call_a_lease_unknown_that_was_given(run: Run) -> str:
    claimed = _never_reported(run)
    run.note(said(claimed, "complete", False, "unknown_lease"))
    return claimed.job_id


def call_a_lease_lost_that_is_held(run: Run) -> str:
    claimed = run.give(run.enqueue("contract"))
    run.note(said(claimed, "complete", False, "lease_lost"))
    return claimed.job_id


def refuse_a_report_and_apply_it(run: Run) -> str:
    claimed = run.give(run.enqueue("contract"))
    run.settle(claimed, Succeeded())
    run.note(said(claimed, "complete", False, "lease_lost"))
    return claimed.job_id


def refuse_a_release_and_apply_it(run: Run) -> str:
    claimed = run.give(run.enqueue("contract"))
    run.settle(claimed, Released())
    run.note(said(claimed, "release", False, "lease_lost"))
    run.run(claimed.job_id)
    return claimed.job_id


def say_that_it_is_cancelled(run: Run) -> str:
    run.note(notes.Operated(run.job("flaky"), "cancel", True, "cancelled"))
    return run.job("flaky")


def say_that_a_cancel_was_requested(run: Run) -> str:
    run.note(notes.Operated(run.job("flaky"), "cancel", True, "running"))
    return run.job("flaky")


def say_that_it_is_requeued_once_more(run: Run) -> str:
    run.note(notes.Operated(run.job("hopeless"), "requeue", True, "pending"))
    return run.job("hopeless")


def retry_in_spite_of_a_cancel(run: Run) -> str:
    """The lifecycle allows it, the promise does not: a request is written into the history of what was tried again."""
    events = "UPDATE holdfast_events SET seq = seq {} WHERE job_id = :id AND seq > {}"
    request = (
        "SELECT job_id, 3, at, 'cancel_requested', 'running', 'running', attempt, worker, lease FROM holdfast_events"
    )
    for statement in (
        events.format("+ 100", 2),
        "INSERT INTO holdfast_events (job_id, seq, at, event, from_state, to_state, attempt, worker, lease) "
        f"{request} WHERE job_id = :id AND seq = 2",
        events.format("- 99", 100),
        "UPDATE holdfast_jobs SET seq = seq + 1 WHERE id = :id",
    ):
        assert run.sql(statement, id=run.job("flaky")) > 0
    return run.job("flaky")


# Planted: what ran


def run_what_was_not_claimed(run: Run) -> str:
    run.note(notes.Began(run.job("add"), 2, 8))
    return run.job("add")


def run_a_job_that_is_not_there(run: Run) -> str:
    job_id = str(uuid4())
    run.note(notes.Intended([job_id], "add"), notes.Began(job_id, 1, 8))
    return job_id


def run_an_attempt_twice(run: Run) -> str:
    run.note(notes.Began(run.job("add"), 1, 8), by=HTTP)
    return run.job("add")


def succeed_without_running(run: Run) -> str:
    claimed = run.claim(run.enqueue("add"))
    run.settle(claimed, Succeeded())
    return claimed.job_id


def succeed_half_way(run: Run) -> str:
    claimed = run.begin(run.enqueue("add"))
    run.settle(claimed, Succeeded())
    return claimed.job_id


def succeed_with_what_an_earlier_attempt_ran(run: Run) -> str:
    job_id = run.enqueue("add")
    claimed = run.begin(job_id)
    run.note(notes.Ended(job_id, 1, 7))
    run.settle(claimed, Released())
    run.settle(run.claim(job_id), Succeeded())
    return job_id


def succeed_over_the_contract_without_a_claim(run: Run) -> str:
    claimed = run.claim(run.enqueue("contract"), CONTRACT)
    run.settle(claimed, Succeeded())
    return claimed.job_id


# Planted: what was charged


def charge_a_calm_job(run: Run) -> str:
    job_id = run.enqueue("add")
    run.settle(run.begin(job_id), BROKEN)
    run.run(job_id)
    return job_id


def fail_a_calm_job(run: Run) -> str:
    claimed = run.begin(run.enqueue("add"))
    run.settle(claimed, HOPELESS)
    return claimed.job_id


def charge_a_calm_job_before_it_was_requeued(run: Run) -> str:
    job_id = fail_a_calm_job(run)
    run.operate("requeue", job_id)
    run.run(job_id)
    return job_id


def let_poison_succeed(run: Run) -> str:
    job_id = run.enqueue("poison")
    run.run(job_id)
    return job_id


def let_poison_fail_as_if_it_were_an_error(run: Run) -> str:
    claimed = run.begin(run.enqueue("poison"))
    run.settle(claimed, HOPELESS)
    return claimed.job_id


def give_poison_up_too_early(run: Run) -> str:
    job_id = run.enqueue("poison", max_crashes=2, max_attempts=10)
    for _ in range(2):
        run.settle(run.begin(job_id), KILLED)
        run.clock.move(5)
    return job_id


# Planted: ticks


def make_another_job_of_a_schedule(run: Run) -> str:
    job_id = run.store.run_schedule_now("every-ten").id
    run.run(job_id)
    return job_id


def lose_the_job_of_a_tick(run: Run) -> str:
    [[job_id]] = _rows(run, "SELECT job_id FROM holdfast_schedule_ticks WHERE outcome = 'fired' LIMIT 1")
    _lose_everything(run, job_id)
    return str(job_id)


def _rows(run: Run, statement: str) -> list[Any]:
    with run.store.database.engine.connect() as connection:
        return list(connection.execute(text(statement)))


PLANTED: dict[Callable[[Run], str], str] = {
    accept_what_is_not_there: "lost",
    lose_a_job: "lost",
    leave_a_job_waiting: "not_ended",
    leave_a_job_running: "not_ended",
    make_a_job_that_nobody_wanted: "phantom",
    deliver_what_did_not_happen: "phantom",
    replay_what_is_not_there: "phantom",
    say_yes_to_a_report_and_forget_it: "untrue_answer",
    say_yes_and_record_something_else: "untrue_answer",
    say_yes_under_another_attempt: "untrue_answer",
    give_a_lease_that_is_not_on_record: "untrue_answer",
    give_a_lease_in_another_s_name: "untrue_answer",
    give_a_job_that_is_not_there: "untrue_answer",
    call_a_lease_unknown_that_was_given: "untrue_answer",
    refuse_a_report_and_apply_it: "refused_but_applied",
    refuse_a_release_and_apply_it: "refused_but_applied",
    say_that_it_is_cancelled: "operated",
    say_that_a_cancel_was_requested: "operated",
    say_that_it_is_requeued_once_more: "operated",
    retry_in_spite_of_a_cancel: "operated",
    run_what_was_not_claimed: "unknown_execution",
    run_a_job_that_is_not_there: "unknown_execution",
    run_an_attempt_twice: "attempt_twice",
    succeed_without_running: "success_without_execution",
    succeed_half_way: "success_without_execution",
    succeed_with_what_an_earlier_attempt_ran: "success_without_execution",
    succeed_over_the_contract_without_a_claim: "success_without_execution",
    charge_a_calm_job: "wrongly_charged",
    fail_a_calm_job: "wrongly_charged",
    charge_a_calm_job_before_it_was_requeued: "wrongly_charged",
    let_poison_succeed: "poison",
    let_poison_fail_as_if_it_were_an_error: "poison",
    give_poison_up_too_early: "poison",
    make_another_job_of_a_schedule: "tick_twice",
    lose_the_job_of_a_tick: "vanished",
}


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


# What `holdfast verify` checks

ROW = "UPDATE holdfast_jobs SET {} WHERE id = :id"
EVENT = "UPDATE holdfast_events SET {} WHERE job_id = :id AND seq = {}"
COPY_LAST = (
    "INSERT INTO holdfast_events (job_id, seq, at, event, from_state, to_state, attempt, worker, lease)"
    " SELECT job_id, seq + 1, at, {}, attempt, worker, lease FROM holdfast_events"
    " WHERE job_id = :id ORDER BY seq DESC LIMIT 1"
)
FAR = "2099-01-01T00:00:00.000000Z"
# Done to a job of `flaky`: enqueued, claimed, retry_scheduled, claimed, succeeded.
DAMAGES: dict[HistoryRule, str] = {
    HistoryRule.NO_HISTORY: "DELETE FROM holdfast_events WHERE job_id = :id",
    HistoryRule.NO_ROW: "DELETE FROM holdfast_jobs WHERE id = :id",
    HistoryRule.AFTER_PRUNED: COPY_LAST.format("'pruned', 'succeeded', NULL").replace(
        "worker, lease FROM", "NULL, NULL FROM"
    ),
    HistoryRule.GAP: "DELETE FROM holdfast_events WHERE job_id = :id AND seq = 3",
    HistoryRule.UNKNOWN_EVENT: EVENT.format("event = 'stolen'", 3),
    HistoryRule.ILLEGAL_TRANSITION: EVENT.format("to_state = 'pending'", 3),
    HistoryRule.BROKEN_CHAIN: EVENT.format("from_state = 'pending'", 4),
    HistoryRule.TIME_ORDER: EVENT.format(f"at = '{FAR}'", 3),
    HistoryRule.LEASE_OVERLAP: EVENT.format("event = 'claimed', from_state = 'pending', to_state = 'running'", 3),
    HistoryRule.CLAIM_WITHOUT_LEASE: EVENT.format("lease = NULL", 4),
    HistoryRule.WRONG_LEASE: EVENT.format("lease = 'forged'", 5),
    HistoryRule.ATTEMPT_NOT_GROWING: EVENT.format("attempt = 5", 4),
    HistoryRule.TWO_OUTCOMES: COPY_LAST.format("'failed', 'running', 'failed'"),
    HistoryRule.FOLD: ROW.format("attempt = 9"),
    HistoryRule.COUNTERS: ROW.format("failures = 0"),
    HistoryRule.UPDATED_AT: ROW.format(f"updated_at = '{FAR}'"),
    HistoryRule.FINISHED_AT: ROW.format("finished_at = NULL"),
    HistoryRule.LEASE_WITHOUT_RUNNING: ROW.format("lease_token = 'left'"),
}


@pytest.mark.parametrize(("rule", "statement"), DAMAGES.items(), ids=DAMAGES)
def test_what_verify_finds_is_found_under_its_name_and_no_other(run: Run, rule: HistoryRule, statement: str) -> None:
    assert run.sql(statement, id=run.job("flaky")) > 0
    broken = run.broken()
    assert (broken.rule, broken.job_id) == (rule, run.job("flaky"))


def test_a_running_job_without_a_lease(run: Run) -> None:
    job_id = leave_a_job_running(run)
    run.sql(ROW.format("lease_token = NULL"), id=job_id)
    broken = run.broken()
    assert (broken.rule, broken.job_id) == ("running_without_lease", job_id)


def test_every_rule_is_planted_somewhere(healthy: Healthy) -> None:
    elsewhere = {"over_limit", "over_rate", "tick_missed", "slow_recovery", "running_without_lease"}
    assert {*PLANTED.values(), *map(str, DAMAGES), *elsewhere} == set(SENTENCES)
    assert healthy.jobs
