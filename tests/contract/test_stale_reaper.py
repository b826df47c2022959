"""A reaper that was slow between its reading and its writing, while the job has gone through another lease."""

from collections.abc import Callable

from holdfast.stores.sql_store import SqlStore
from holdfast.stores.statements import reap as statements
from holdfast.stores.verbs import reaping
from tests.contract.ground import Clock
from tests.contract.steps import claim_this, reap, start

FIRST = {"queue": "", "id": "00000000-0000-0000-0000-000000000000", "page": 500}


def test_a_stale_page_takes_back_no_later_lease_even_if_that_has_expired_too(
    store: SqlStore, clock: Clock, open_again: Callable[[], SqlStore]
) -> None:
    """What it decided, it decided of a first crash: the second one is the last that the job may have."""
    slow = open_again()
    claimed = start(store, max_crashes=2)
    clock.move(61)
    with slow.database.reading() as transaction:
        read = transaction.rows(statements.EXPIRED, FIRST)
    assert len(reap(store).settled) == 1
    claim_this(store, claimed.job_id, "bob")
    clock.move(61)
    before = store.job(claimed.job_id)
    with slow.database.statement() as transaction:
        assert reaping.apply(transaction, read) == []
    assert store.job(claimed.job_id) == before
