"""What `holdfast verify` finds in a run is found under the same name, and nothing else is held against that job."""

import pytest

from holdfast.domain.history import HistoryRule
from tests.torture.planted import Run
from tests.torture.plants import leave_a_job_running

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
