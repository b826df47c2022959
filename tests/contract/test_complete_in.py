"""Finish the job in the user's own Postgres transaction: its effects and the job's end are one commit."""

import sqlite3
from collections.abc import Callable, Iterator
from typing import Any

import psycopg
import pytest
from sqlalchemy import NullPool, create_engine

from holdfast.domain.answers import Reason, Status
from holdfast.domain.errors import ConfigurationError, InvalidInput, LeaseLost
from holdfast.domain.job import Claimed
from holdfast.domain.lifecycle import State
from holdfast.domain.outcome import Report, Succeeded
from holdfast.stores.sql_store import SqlStore
from holdfast.wiring.sql import complete_in
from tests.contract.ground import ByHand, Clock, on_postgres, on_sqlite
from tests.contract.steps import BROKEN, beat, claim_ids, enqueue, history, lose_lease, reap, report, settle, start
from tests.contract.test_user_transaction import ANYWHERE, POSTGRES_ONLY, driver_url

DONE = Succeeded({"sum": 3})
Opener = Callable[[str], Any]


@pytest.fixture
def mine(database_url: str) -> Iterator[psycopg.Connection[Any]]:
    """The user's own transaction."""
    with psycopg.connect(driver_url(database_url)) as connection:
        yield connection
        connection.rollback()


def done(claimed: Claimed) -> Report:
    return report(claimed, DONE)


@on_postgres
@pytest.mark.parametrize("opened", [*ANYWHERE, *POSTGRES_ONLY])
def test_commit_ends_the_job(store: SqlStore, database_url: str, opened: Opener) -> None:
    claimed = start(store)
    with opened(database_url) as mine:
        complete_in(mine, done(claimed))
        assert store.job(claimed.job_id).state is State.RUNNING, "nobody else sees it before the commit"
        mine.commit()
    job = store.job(claimed.job_id)
    assert (job.state, job.result) == (State.SUCCEEDED, {"sum": 3})
    assert history(store, claimed.job_id) == ["enqueued", "claimed", "succeeded"]
    assert settle(store, claimed, DONE).status is Status.REPLAYED, "the worker's own report of it"


@on_postgres
@pytest.mark.parametrize("opened", [*ANYWHERE, *POSTGRES_ONLY])
def test_rollback_leaves_it_running_under_the_same_lease(store: SqlStore, database_url: str, opened: Opener) -> None:
    claimed = start(store)
    with opened(database_url) as mine:
        complete_in(mine, done(claimed))
        mine.rollback()
    assert store.job(claimed.job_id).state is State.RUNNING
    assert history(store, claimed.job_id) == ["enqueued", "claimed"]
    assert store.heartbeat([beat(claimed)])[0].status is Status.APPLIED
    assert settle(store, claimed, BROKEN).event == "retry_scheduled"


@on_postgres
def test_an_open_transaction_disturbs_no_neighbour(
    store: SqlStore, clock: Clock, mine: psycopg.Connection[Any]
) -> None:
    reap(store)
    open_one, neighbour, lost = start(store), start(store), start(store)
    waiting = enqueue(store)
    complete_in(mine, done(open_one))
    own, others = store.heartbeat([beat(open_one), beat(neighbour)])
    assert (own.status, others.status) == (Status.BUSY, Status.APPLIED)
    assert claim_ids(store) == [waiting]
    own_report, others_report = store.settle([done(open_one), done(neighbour)])
    assert (own_report.status, others_report.status) == (Status.BUSY, Status.APPLIED)
    for _ in range(3):
        clock.move(25)
        reaped = reap(store)
    assert {settled.job_id for settled in reaped.settled} == {lost.job_id, waiting}, "the reaper passes it over"
    mine.commit()
    assert store.job(open_one.job_id).state is State.SUCCEEDED
    assert store.refusals() == []


@on_postgres
def test_the_reaper_skips_an_open_one_and_takes_it_after_a_rollback(
    store: SqlStore, clock: Clock, mine: psycopg.Connection[Any]
) -> None:
    claimed = start(store)
    complete_in(mine, done(claimed))
    lose_lease(store, clock, claimed)
    assert store.job(claimed.job_id).state is State.RUNNING
    mine.rollback()
    reap(store)
    assert store.job(claimed.job_id).state is State.PENDING


@on_postgres
def test_a_lease_that_was_lost_before_changes_nothing(
    store: SqlStore, clock: Clock, by_hand: ByHand, mine: psycopg.Connection[Any]
) -> None:
    claimed = start(store)
    lose_lease(store, clock, claimed)
    before = by_hand.everything()
    with pytest.raises(LeaseLost, match=rf"{claimed.job_id}, attempt 1: .*lease_lost"):
        complete_in(mine, done(claimed))
    mine.commit()
    assert by_hand.everything() == before
    answer = store.settle_in(mine, done(claimed))
    assert (answer.status, answer.reason) == (Status.REFUSED, Reason.LEASE_LOST)


@on_postgres
def test_somebody_elses_lease_and_a_job_that_is_not_there(store: SqlStore, mine: psycopg.Connection[Any]) -> None:
    claimed = start(store)
    forged = Report(claimed.job_id, claimed.attempt, "forged", DONE)
    assert store.settle_in(mine, forged).reason is Reason.UNKNOWN_LEASE
    nobody = Report("00000000-0000-0000-0000-000000000007", 1, claimed.lease_token, DONE)
    assert store.settle_in(mine, nobody).reason is Reason.UNKNOWN_JOB
    assert store.settle_in(mine, done(claimed)).status is Status.APPLIED
    assert store.settle_in(mine, done(claimed)).status is Status.REPLAYED
    assert store.settle_in(mine, report(claimed, BROKEN)).reason is Reason.CONFLICTING_REPORT


@on_postgres
def test_a_row_that_somebody_has_locked_is_busy(
    store: SqlStore, database_url: str, mine: psycopg.Connection[Any]
) -> None:
    claimed = start(store)
    with psycopg.connect(driver_url(database_url)) as other:
        other.execute("SELECT * FROM holdfast_jobs FOR UPDATE")
        assert store.settle_in(mine, done(claimed)).status is Status.BUSY
        with pytest.raises(LeaseLost, match="busy"):
            complete_in(mine, done(claimed))
    assert store.settle_in(mine, done(claimed)).status is Status.APPLIED


@on_postgres
def test_a_connection_that_would_commit_at_once_is_refused(store: SqlStore, database_url: str) -> None:
    claimed = start(store)
    with (
        psycopg.connect(driver_url(database_url), autocommit=True) as mine,
        pytest.raises(InvalidInput, match="autocommit"),
    ):
        complete_in(mine, done(claimed))
    engine = create_engine(database_url, poolclass=NullPool, isolation_level="AUTOCOMMIT")
    with engine.connect() as connection, pytest.raises(InvalidInput, match="autocommit"):
        complete_in(connection, done(claimed))
    with psycopg.connect(driver_url(database_url), autocommit=True) as mine, mine.transaction():
        complete_in(mine, done(claimed))
    assert store.job(claimed.job_id).state is State.SUCCEEDED


@on_sqlite
def test_on_sqlite_it_says_what_it_needs(store: SqlStore, by_hand: ByHand) -> None:
    claimed = start(store)
    with by_hand.engine.connect() as connection, pytest.raises(ConfigurationError, match="complete_in needs Postgres"):
        complete_in(connection, done(claimed))
    with pytest.raises(ConfigurationError, match="complete_in needs Postgres"):
        complete_in(sqlite3.Connection.__new__(sqlite3.Connection), done(claimed))
    with pytest.raises(InvalidInput, match="must be a SQLAlchemy Connection or Session"):
        complete_in("postgresql://h/d", done(claimed))
    assert store.job(claimed.job_id).state is State.RUNNING
