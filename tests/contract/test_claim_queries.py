"""How many queries an idle worker's claim makes, and what a claim tells of a job's budget."""

from types import SimpleNamespace

import pytest

from holdfast.stores import known_limits
from holdfast.stores.database import CursorTransaction
from holdfast.stores.sql_store import SqlStore
from tests.contract.ground import on_postgres
from tests.contract.steps import BROKEN, KILLED, claim, enqueue, settle_well, start


@pytest.fixture
def asked(monkeypatch: pytest.MonkeyPatch) -> list[str]:
    """The names of the statements that are run."""
    names: list[str] = []
    run = CursorTransaction.run

    def remember(transaction: CursorTransaction, statement: object, *rest: object) -> None:
        names.append(statement.name)  # type: ignore[attr-defined]
        run(transaction, statement, *rest)  # type: ignore[arg-type]

    monkeypatch.setattr(CursorTransaction, "run", remember)
    return names


@on_postgres
def test_an_idle_claim_is_one_query_and_two_every_five_seconds(
    store: SqlStore, asked: list[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    seconds = 1000.0
    monkeypatch.setattr(known_limits, "time", SimpleNamespace(monotonic=lambda: seconds))
    assert known_limits.REMEMBERED_SECONDS == 5.0
    counts = []
    for _ in range(10):  # a poll every two seconds
        assert store.claim("ann", 4, tasks=["add"]) == []
        counts.append(len(asked))
        asked.clear()
        seconds += 2
    assert counts == [2, 1, 1, 2, 1, 1, 2, 1, 1, 2]
    assert sum(counts) / 20 <= 1


def test_a_claim_tells_of_the_budget(store: SqlStore) -> None:
    claimed = start(store, max_attempts=7, max_crashes=5)
    assert (claimed.failures, claimed.crashes, claimed.max_attempts, claimed.max_crashes) == (0, 0, 7, 5)
    settle_well(store, claimed, KILLED)
    enqueue(store, "other", priority=-1)
    again = claim(store, tasks=["add"])
    assert (again.attempt, again.failures, again.crashes) == (2, 0, 1)
    settle_well(store, again, BROKEN)
    assert store.job(again.job_id).failures == 1
