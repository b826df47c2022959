"""What may be wrong with a run, done to a healthy one: each answers which job it was done to."""

from collections.abc import Callable
from dataclasses import replace
from typing import Any
from uuid import uuid4

from sqlalchemy import text

from holdfast.domain.job import Claimed, NewJob
from holdfast.domain.outcome import Released, Succeeded
from holdfast.torture import notes
from tests.torture.planted import BROKEN, CONTRACT, HOPELESS, HTTP, INVALID, KILLED, Run, said

# What was accepted


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


# What somebody was told


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


# What ran


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


# What was charged


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


def replace_the_outcome_of_code_that_ran_to_its_end(run: Run) -> str:
    job_id = run.enqueue("flaky")
    claimed = run.begin(job_id)
    run.note(notes.Ended(job_id, claimed.attempt, 7))
    run.settle(claimed, HOPELESS)
    return job_id


def run_an_undecodable_payload(run: Run) -> str:
    job_id = run.insert_undecodable()
    run.run(job_id)
    return job_id


def begin_an_undecodable_payload(run: Run) -> str:
    job_id = run.insert_undecodable()
    run.settle(run.begin(job_id), INVALID)
    return job_id


def fail_an_undecodable_payload_with_another_code(run: Run) -> str:
    job_id = run.insert_undecodable()
    run.settle(run.claim(job_id), HOPELESS)
    return job_id


# Ticks


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
    replace_the_outcome_of_code_that_ran_to_its_end: "outcome_replaced",
    run_an_undecodable_payload: "undecodable",
    begin_an_undecodable_payload: "undecodable",
    fail_an_undecodable_payload_with_another_code: "undecodable",
    let_poison_succeed: "poison",
    let_poison_fail_as_if_it_were_an_error: "poison",
    give_poison_up_too_early: "poison",
    make_another_job_of_a_schedule: "tick_twice",
    lose_the_job_of_a_tick: "vanished",
}
