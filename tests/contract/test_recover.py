"""Claims whose answer was lost are found again by who asked for them, and nothing else is taken for one."""

import pytest

from holdfast.domain.answers import Status
from holdfast.domain.errors import StoreUnavailable
from holdfast.stores.sql_store import SqlStore
from tests.contract.steps import beat, start


def lose_the_answer_to_a_claim(store: SqlStore) -> None:
    with pytest.raises(StoreUnavailable), store._claiming.secret(credential=""):
        raise StoreUnavailable("the connection broke before the answer was read")


def test_what_a_worker_is_working_on_is_no_lost_claim(store: SqlStore) -> None:
    working = start(store)
    lose_the_answer_to_a_claim(store)
    assert store.recover("ann") == [], "whoever takes it for lost gives it back, and it runs twice"
    assert [answer.status for answer in store.heartbeat([beat(working)])] == [Status.APPLIED]
