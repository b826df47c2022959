"""Enqueue inside the user's own transaction: the job exists if and only if that transaction commits."""

import asyncio
import sqlite3
from collections.abc import AsyncIterator, Awaitable, Callable, Iterator
from concurrent.futures import ThreadPoolExecutor
from contextlib import asynccontextmanager, contextmanager
from typing import Any

import psycopg
import pytest
from psycopg.rows import dict_row, namedtuple_row
from sqlalchemy import NullPool, create_engine, make_url, text
from sqlalchemy.ext.asyncio import AsyncConnection, AsyncSession, create_async_engine
from sqlalchemy.orm import Session, scoped_session, sessionmaker

from holdfast.domain.errors import Conflict, InvalidInput, StoreUnavailable
from holdfast.domain.job import Enqueued
from holdfast.domain.lifecycle import State
from holdfast.domain.outcome import Succeeded
from holdfast.stores.sql_store import SqlStore
from holdfast.stores.verbs import enqueueing
from holdfast.wiring.sql import complete_in
from tests.contract.ground import ByHand, on_postgres, on_sqlite
from tests.contract.steps import claim_ids, claim_this, enqueue, history, new, report, settle_well
from tests.servers.waiting import wait_until

SOME_ID = "01890a5d-ac96-774b-bcce-b302099a8057"


def driver_url(url: str) -> str:
    return make_url(url).set(drivername="postgresql").render_as_string(hide_password=False)


@contextmanager
def a_connection(url: str) -> Iterator[Any]:
    engine = create_engine(url, poolclass=NullPool)
    with engine.connect() as connection:
        yield connection


@contextmanager
def a_session(url: str) -> Iterator[Any]:
    with Session(create_engine(url, poolclass=NullPool)) as session:
        yield session


@contextmanager
def a_scoped_session(url: str) -> Iterator[Any]:
    session = scoped_session(sessionmaker(create_engine(url, poolclass=NullPool)))
    yield session
    session.remove()


@contextmanager
def a_psycopg_connection(url: str) -> Iterator[Any]:
    with psycopg.connect(driver_url(url)) as connection:
        yield connection


@contextmanager
def a_psycopg_connection_with_dict_rows(url: str) -> Iterator[Any]:
    with psycopg.connect(driver_url(url), row_factory=dict_row) as connection:
        yield connection


@contextmanager
def a_psycopg_connection_with_client_cursors(url: str) -> Iterator[Any]:
    with psycopg.connect(
        driver_url(url), cursor_factory=psycopg.ClientCursor, row_factory=namedtuple_row
    ) as connection:
        yield connection


@contextmanager
def a_connection_in_the_middle_of_work(url: str) -> Iterator[Any]:
    """One in which the user already works."""
    with a_connection(url) as connection:
        connection.execute(text("CREATE TEMPORARY TABLE orders (number integer)"))
        connection.execute(text("INSERT INTO orders VALUES (1)"))
        yield connection


ANYWHERE = [a_connection, a_session, a_scoped_session, a_connection_in_the_middle_of_work]
POSTGRES_ONLY = [
    a_psycopg_connection,
    a_psycopg_connection_with_dict_rows,
    a_psycopg_connection_with_client_cursors,
]
Opener = Callable[[str], Any]


PAIRS = [(store, opener) for store in ("sqlite", "postgres") for opener in ANYWHERE]
PAIRS += [("postgres", opener) for opener in POSTGRES_ONLY]
on_each_connection = pytest.mark.parametrize(
    ("database_url", "opened"),
    PAIRS,
    ids=[f"{store}-{opener.__name__}" for store, opener in PAIRS],
    indirect=["database_url"],
)


@on_each_connection
def test_commit_makes_the_job(store: SqlStore, database_url: str, opened: Opener) -> None:
    with opened(database_url) as mine:
        answer = store.enqueue(new(payload={"a": 1}), connection=mine)
        assert (answer.created, answer.state) == (True, State.PENDING)
        assert store.jobs().items == (), "nobody else sees it before the commit"
        mine.commit()
    assert store.job(answer.id).payload == {"a": 1}
    assert history(store, answer.id) == ["enqueued"]
    assert claim_ids(store) == [answer.id]


@on_each_connection
def test_rollback_means_no_job(store: SqlStore, by_hand: ByHand, database_url: str, opened: Opener) -> None:
    before = by_hand.everything()
    with opened(database_url) as mine:
        store.enqueue(new(payload={"a": 1}), connection=mine)
        store.enqueue_many([new(unique=True), new(delay=5)], connection=mine)
        mine.rollback()
    assert by_hand.everything() == before


@on_each_connection
def test_uniqueness_holds_inside_it(store: SqlStore, database_url: str, opened: Opener) -> None:
    held = enqueue(store, unique_key="held")
    with opened(database_url) as mine:
        assert store.enqueue(new(unique_key="held"), connection=mine) == Enqueued(held, False, State.PENDING)
        mine_first = store.enqueue(new(unique_key="mine"), connection=mine)
        assert mine_first.created
        answers = store.enqueue_many([new(unique_key="mine"), new(), new(unique_key="other")], connection=mine)
        assert [answer.created for answer in answers] == [False, True, True]
        assert answers[0].id == mine_first.id
        mine.commit()
    assert not store.enqueue(new(unique_key="mine")).created


@on_each_connection
def test_a_bulk_inside_it(store: SqlStore, database_url: str, opened: Opener) -> None:
    with opened(database_url) as mine:
        answers = store.enqueue_many([new(payload={"n": n}) for n in range(500)], connection=mine)
        mine.commit()
    assert claim_ids(store, 1_000) == [answer.id for answer in answers]


@on_each_connection
def test_a_conflict_inside_it_stores_nothing(
    store: SqlStore, by_hand: ByHand, database_url: str, opened: Opener
) -> None:
    """All or nothing also when the user goes on and commits: the refused batch has left nothing behind."""
    enqueue(store, "other", id=SOME_ID)
    with opened(database_url) as mine:
        with pytest.raises(Conflict, match=SOME_ID):
            store.enqueue_many([new(), new(id=SOME_ID), new()], connection=mine)
        mine.commit()
    assert by_hand.count("holdfast_jobs") == 1


@on_postgres
def test_a_savepoint_of_the_user_s_counts(store: SqlStore, database_url: str) -> None:
    with a_connection(database_url) as mine:
        kept = store.enqueue(new(), connection=mine)
        savepoint = mine.begin_nested()
        store.enqueue(new(), connection=mine)
        savepoint.rollback()
        mine.commit()
    assert claim_ids(store) == [kept.id]


@on_postgres
def test_an_open_transaction_does_not_hold_up_another_s_enqueue(store: SqlStore, database_url: str) -> None:
    with a_connection(database_url) as mine:
        store.enqueue(new(unique_key="mine"), connection=mine)
        assert store.enqueue(new(unique_key="yours")).created
        assert store.enqueue(new()).created
        mine.commit()


# Asynchronous connections


@asynccontextmanager
async def an_async_connection(url: str) -> AsyncIterator[AsyncConnection]:
    engine = create_async_engine(url, poolclass=NullPool)
    async with engine.connect() as connection:
        yield connection
    await engine.dispose()


@asynccontextmanager
async def an_async_session(url: str) -> AsyncIterator[AsyncSession]:
    engine = create_async_engine(url, poolclass=NullPool)
    async with AsyncSession(engine) as session:
        yield session
    await engine.dispose()


DRIVERS = [("sqlite", "sqlite+aiosqlite"), ("postgres", "postgresql+psycopg"), ("postgres", "postgresql+asyncpg")]


ASYNC_CASES = [
    (store, driver, opener) for store, driver in DRIVERS for opener in (an_async_connection, an_async_session)
]
on_each_async_connection = pytest.mark.parametrize(
    ("database_url", "driver", "opened"),
    ASYNC_CASES,
    ids=[f"{driver}-{opener.__name__}" for _, driver, opener in ASYNC_CASES],
    indirect=["database_url"],
)


def do(url: str, driver: str, opened: Opener, act: Callable[[Any], Awaitable[None]]) -> None:
    async def on_the_user_s_loop() -> None:
        async_url = make_url(url).set(drivername=driver).render_as_string(hide_password=False)
        async with opened(async_url) as mine:
            await act(mine)

    asyncio.run(on_the_user_s_loop())


@on_each_async_connection
def test_async_commit_makes_the_job(store: SqlStore, database_url: str, driver: str, opened: Opener) -> None:
    answers: list[Enqueued] = []

    async def act(mine: Any) -> None:
        answers.append(await store.aenqueue(new(payload={"a": 1.5}), connection=mine))
        answers.extend(await store.aenqueue_many([new(delay=0.5), new(unique=True)], connection=mine))
        assert store.jobs().items == ()
        await mine.commit()

    do(database_url, driver, opened, act)
    assert [answer.created for answer in answers] == [True, True, True]
    assert store.job(answers[0].id).payload == {"a": 1.5}
    assert len(store.jobs().items) == 3


@on_each_async_connection
def test_async_rollback_means_no_job(
    store: SqlStore, by_hand: ByHand, database_url: str, driver: str, opened: Opener
) -> None:
    async def act(mine: Any) -> None:
        await store.aenqueue(new(), connection=mine)
        await mine.rollback()

    do(database_url, driver, opened, act)
    assert by_hand.count("holdfast_jobs") == by_hand.count("holdfast_events") == 0


@on_each_async_connection
def test_async_uniqueness_holds_inside_it(store: SqlStore, database_url: str, driver: str, opened: Opener) -> None:
    held = enqueue(store, unique_key="held")

    async def act(mine: Any) -> None:
        assert (await store.aenqueue(new(unique_key="held"), connection=mine)).id == held
        first = await store.aenqueue(new(unique_key="mine", reuse_seconds=5), connection=mine)
        assert (await store.aenqueue(new(unique_key="mine"), connection=mine)).id == first.id
        await mine.commit()

    do(database_url, driver, opened, act)
    assert not store.enqueue(new(unique_key="mine")).created


# Connections that cannot work


@on_postgres
def test_a_connection_to_the_other_kind_of_database_is_refused(store: SqlStore, tmp_path: Any) -> None:
    refused = pytest.raises(InvalidInput, match="connection: is to sqlite, but this store is on postgresql")
    with a_connection(f"sqlite:///{tmp_path / 'mine.db'}") as mine, refused:
        store.enqueue(new(), connection=mine)


@on_sqlite
def test_a_postgres_connection_is_refused_by_an_sqlite_store(store: SqlStore, postgres_database: str) -> None:
    for opened in (a_connection, a_session, a_psycopg_connection):
        refused = pytest.raises(InvalidInput, match="connection: is to postgresql, but this store is on sqlite")
        with opened(postgres_database) as mine, refused:
            store.enqueue(new(), connection=mine)


def test_what_is_no_connection_is_refused(store: SqlStore, by_hand: ByHand) -> None:
    with sqlite3.connect(":memory:") as raw:
        for wrong in ("a string", object(), raw, by_hand.engine):
            with pytest.raises(InvalidInput, match="connection: must be a SQLAlchemy Connection or Session"):
                store.enqueue(new(), connection=wrong)
    raw.close()
    assert by_hand.count("holdfast_jobs") == 0


@on_each_async_connection
def test_an_async_connection_needs_the_async_verb(
    store: SqlStore, database_url: str, driver: str, opened: Opener
) -> None:
    async def act(mine: Any) -> None:
        with pytest.raises(InvalidInput, match="aenqueue"):
            store.enqueue(new(), connection=mine)

    do(database_url, driver, opened, act)


@on_each_connection
def test_the_async_verb_needs_an_async_connection(store: SqlStore, database_url: str, opened: Opener) -> None:
    with opened(database_url) as mine:
        with pytest.raises(InvalidInput, match=r"connection: .*AsyncSession or AsyncConnection"):
            asyncio.run(store.aenqueue(new(), connection=mine))
        mine.rollback()


@on_postgres
def test_success_that_frees_a_key_during_the_enqueue_is_reused(
    store: SqlStore, direct_url: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The holder of the key succeeds after the insert found the key taken, and before the holder is read."""
    wanted = new(unique=True, reuse_seconds=3600)
    holder = claim_this(store, store.enqueue(wanted).id)
    find_holders = enqueueing._find_holders

    def find_after_success(*arguments: Any) -> None:
        monkeypatch.setattr(enqueueing, "_find_holders", find_holders)
        settle_well(store, holder, Succeeded())
        find_holders(*arguments)

    monkeypatch.setattr(enqueueing, "_find_holders", find_after_success)
    with a_connection(direct_url) as connection, connection.begin():
        answer = store.enqueue(wanted, connection=connection)
    assert answer == Enqueued(holder.job_id, False, State.SUCCEEDED)
    assert len(store.jobs().items) == 1


@on_postgres
@pytest.mark.parametrize("whose", ["the store's transaction", "the user's transaction"])
def test_success_that_an_insert_waited_for_is_reused(
    store: SqlStore, by_hand: ByHand, direct_url: str, whose: str
) -> None:
    """The holder of the key succeeds in an open transaction, for which the insert of the same key waits."""
    wanted = new(unique=True, reuse_seconds=3600)
    holder = claim_this(store, store.enqueue(wanted).id)

    def enqueue_again() -> Enqueued:
        if whose == "the store's transaction":
            return store.enqueue(wanted)
        with a_connection(direct_url) as connection, connection.begin():
            return store.enqueue(wanted, connection=connection)

    waiting = "SELECT count(*) FROM pg_stat_activity WHERE datname = current_database() AND wait_event_type = 'Lock'"
    with a_connection(direct_url) as ending, ThreadPoolExecutor() as threads:
        complete_in(ending, report(holder, Succeeded()))
        answer = threads.submit(enqueue_again)
        wait_until(lambda: by_hand(waiting) == [(1,)], what="the insert waits for the key")
        ending.commit()
        assert answer.result() == Enqueued(holder.job_id, False, State.SUCCEEDED)
    assert len(store.jobs().items) == 1


@on_postgres
def test_connection_in_autocommit_enqueues_a_key_with_reuse(store: SqlStore, direct_url: str) -> None:
    wanted = new(unique=True, reuse_seconds=3600)
    with psycopg.connect(driver_url(direct_url), autocommit=True) as mine:
        assert store.enqueue(wanted, connection=mine).created
    with create_engine(direct_url, poolclass=NullPool, isolation_level="AUTOCOMMIT").connect() as mine:
        assert not store.enqueue(wanted, connection=mine).created


@pytest.mark.parametrize("options", [{}, {"reuse_seconds": 3600}], ids=["key", "key with reuse"])
def test_key_that_changes_hands_on_every_try_is_given_up_and_the_transaction_goes_on(
    store: SqlStore, direct_url: str, monkeypatch: pytest.MonkeyPatch, options: dict[str, Any]
) -> None:
    """Every insert finds the key taken, and no holder is found any more when it is looked for."""
    holder = enqueue(store, unique=True)
    tries: list[int] = []
    with a_connection(direct_url) as connection, connection.begin():
        with monkeypatch.context() as meanwhile:
            meanwhile.setattr(enqueueing, "_find_holders", lambda *_given: tries.append(1))
            with pytest.raises(StoreUnavailable, match=r"^a unique key changed hands on every try; enqueue again$"):
                store.enqueue(new(unique=True, **options), connection)
        assert len(tries) == enqueueing.TRIES
        after = store.enqueue(new("after"), connection).id
    assert {job.id for job in store.jobs().items} == {holder, after}
