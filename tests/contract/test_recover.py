"""Claims whose answer was lost are found again by who asked for them, and nothing else is taken for one."""

import pytest

from holdfast.domain.answers import Status
from holdfast.domain.errors import StoreUnavailable
from holdfast.domain.lifecycle import State
from holdfast.stores import rows
from holdfast.stores.sql_store import SqlStore
from tests.contract.steps import beat, enqueue, start


def lose_the_answer_to_a_claim(store: SqlStore) -> None:
    with pytest.raises(StoreUnavailable), store._claiming.secret(credential=""):
        raise StoreUnavailable("the connection broke before the answer was read")


def test_what_a_worker_is_working_on_is_no_lost_claim(store: SqlStore) -> None:
    working = start(store)
    lose_the_answer_to_a_claim(store)
    assert store.recover("ann") == [], "whoever takes it for lost gives it back, and it runs twice"
    assert [answer.status for answer in store.heartbeat([beat(working)])] == [Status.APPLIED]


def test_claim_that_fails_after_its_commit_is_recovered(store: SqlStore, monkeypatch: pytest.MonkeyPatch) -> None:
    job_id = enqueue(store)

    def read_row(*_arguments: object) -> None:
        raise LookupError("this row cannot be read")

    with monkeypatch.context() as patch:
        patch.setattr(rows, "claimed", read_row)
        with pytest.raises(LookupError):
            store.claim("ann")
    was_committed = store.job(job_id).state is State.RUNNING  # on SQLite the claim is rolled back
    assert [job.job_id for job in store.recover("ann")] == ([job_id] if was_committed else [])
