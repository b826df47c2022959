"""In one group some are old enough to go and others are not: that the oldest go takes no other along."""

import pytest

from holdfast.domain.lifecycle import State
from holdfast.domain.retention import Group, Kept
from holdfast.stores.sql_store import SqlStore
from tests.contract.ground import Clock
from tests.contract.steps import history, job_in

DAY = 86_400.0


@pytest.fixture
def clock(clock: Clock) -> Clock:
    """Ahead of the host: the triggers of SQLite have only the host's clock, and must not overtake the store's."""
    clock.move(DAY)
    return clock


def test_a_young_history_stays_when_an_old_one_of_its_queue_and_state_goes(store: SqlStore, clock: Clock) -> None:
    old = job_in(store, State.SUCCEEDED)
    store.prune(Group(Kept.JOBS, "default", State.SUCCEEDED, 0.0), 500)
    clock.move(60 * DAY)
    young = job_in(store, State.SUCCEEDED)
    store.prune(Group(Kept.JOBS, "default", State.SUCCEEDED, 0.0), 500)
    clock.move(30 * DAY)
    assert [store.retire(group, 500).jobs for group in store.retention_due(Kept.HISTORIES)] == [1]
    assert (history(store, old), history(store, young)) == ([], ["enqueued", "claimed", "succeeded", "pruned"])
