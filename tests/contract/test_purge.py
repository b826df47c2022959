"""An operator purges dead letters that are old enough, also if their age has changed since they were listed."""

from holdfast.domain.lifecycle import State
from holdfast.stores.sql_store import SqlStore
from tests.contract.ground import Clock
from tests.contract.steps import HOPELESS, claim_this, job_in, settle_well


def test_a_dead_letter_that_is_younger_than_what_was_asked_for_stays(store: SqlStore, clock: Clock) -> None:
    old, died_anew = job_in(store, State.FAILED), job_in(store, State.FAILED)
    clock.move(3600)
    store.requeue([died_anew])
    settle_well(store, claim_this(store, died_anew), HOPELESS)
    assert store.purge([old, died_anew], older_than=60.0).ids == (old,)
    assert store.job(died_anew).state is State.FAILED
