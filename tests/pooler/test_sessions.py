"""Nothing of ours stays behind in the sessions of a pooler, which belong to everybody."""

import threading
from contextlib import ExitStack, closing

import psycopg
import pytest
from sqlalchemy import create_engine, text

from holdfast.domain.errors import ConfigurationError, StoreUnavailable
from holdfast.domain.job import NewJob
from holdfast.domain.outcome import Report, Succeeded
from holdfast.stores.postgres import PostgresDatabase, open_postgres
from holdfast.stores.postgres_session import COMPILES, POOLED
from holdfast.stores.postgres_url import libpq_url
from holdfast.stores.sql_store import SqlStore
from holdfast.stores.statements.words import Statement
from holdfast.transports.pg_listen import Listener
from holdfast.wiring.sql import open_store
from tests.chaos.databases import assert_verified, query
from tests.pooler.conftest import Ways
from tests.servers.pgbouncer import POOL_SIZE, PgbouncerEndpoint, documented_configuration
from tests.servers.waiting import wait_until

_SHOW_JIT = Statement("test.jit", lambda _words: "SELECT current_setting('jit')", replan=True)
_SHOW_JIT_PLAINLY = Statement("test.jit_plainly", lambda _words: "SELECT current_setting('jit')")
_FAILING = Statement("test.failing", lambda _words: "SELECT 1 / 0", replan=True)


def work(store: SqlStore, rounds: int) -> None:
    for _ in range(rounds):
        store.enqueue_many([NewJob(task="work", queue=queue) for queue in ("one", "two")])
        claim_and_settle(store)


def claim_and_settle(store: SqlStore) -> int:
    jobs = store.claim("w", 2)
    for job in jobs:
        store.settle([Report(job.job_id, job.attempt, job.lease_token, Succeeded(None), "w")])
    return len(jobs)


def sessions(pooled: str, question: str) -> dict[int, str]:
    """What every backend of the pool answers: all of them are held at once to ask each."""
    clients = [psycopg.connect(libpq_url(pooled), prepare_threshold=None) for _ in range(POOL_SIZE)]
    try:
        answers = [client.execute(f"SELECT pg_backend_pid(), ({question})::text".encode()) for client in clients]
        return dict(answer.fetchone() or (0, "") for answer in answers)
    finally:
        for client in clients:
            client.close()


def test_a_pooler_is_noticed_and_a_server_is_not_taken_for_one(ways: Ways) -> None:
    for url, pooled in ((ways.pooled, True), (ways.direct, False)):
        database = open_postgres(url)
        with database.engine.connect() as connection:
            assert connection.info[POOLED] is pooled
        database.close()


def test_many_threads_share_few_backends_and_every_transaction_may_get_another(ways: Ways, store: SqlStore) -> None:
    workers = [threading.Thread(target=work, args=(store, 25)) for _ in range(8)]
    for worker in workers:
        worker.start()
    for worker in workers:
        worker.join()
    assert 1 < ways.backends() <= POOL_SIZE
    while claim_and_settle(store):  # what a claim passed over because another had just locked it
        pass
    assert store.counts() == {"succeeded": 2 * 8 * 25}
    assert_verified(ways.pooled)


def test_no_setting_no_statement_and_no_listener_stays_behind(ways: Ways, store: SqlStore) -> None:
    query(ways.direct, f'ALTER DATABASE "{ways.direct.rpartition("/")[2]}" SET jit = on')
    work(store, 12)  # more than the five executions after which psycopg would prepare a statement
    store.limit_queue("one", 1)
    work(store, 12)
    listener = Listener(libpq_url(ways.pooled), lambda: None)
    listener.start()
    wait_until(lambda: listener.status == "degraded", what="it knows that it is deaf")
    listener.close()
    assert set(sessions(ways.pooled, "current_setting('jit')").values()) == {"on"}
    assert set(sessions(ways.pooled, "SELECT count(*) FROM pg_prepared_statements").values()) == {"0"}
    assert set(sessions(ways.pooled, "SELECT count(*) FROM pg_listening_channels()").values()) == {"0"}


@pytest.mark.parametrize("limited", [False, True])
def test_a_claim_is_not_compiled_although_the_server_compiles_everything(ways: Ways, limited: bool) -> None:
    """The server is told to compile whatever costs anything, and to write down what it compiled."""
    name = ways.direct.rpartition("/")[2]
    for setting in ("jit = on", "jit_above_cost = 0", "statement_timeout = '120s'"):
        query(ways.direct, f'ALTER DATABASE "{name}" SET {setting}')
    store = open_store(ways.pooled)
    if limited:
        store.limit_queue("one", 1)
    with store.database.engine.connect() as connection:
        assert connection.info[COMPILES] is True
    with store.database.transaction() as transaction:
        transaction.rows(_SHOW_JIT)
        [[jit]] = transaction.rows(_SHOW_JIT)
        assert jit == "off"
    with store.database.statement() as transaction:
        [[jit]] = transaction.rows(_SHOW_JIT)
        assert jit == "off"
    with store.database.statement() as transaction:
        [[jit]] = transaction.rows(_SHOW_JIT_PLAINLY)
        assert jit == "on"
    work(store, 3)
    store.close()


def test_an_error_inside_a_claim_leaves_the_connection_usable(ways: Ways) -> None:
    query(ways.direct, f'ALTER DATABASE "{ways.direct.rpartition("/")[2]}" SET jit = on')
    store = open_store(ways.pooled, pool_size=1)
    with pytest.raises(psycopg.errors.DivisionByZero), store.database.statement() as transaction:
        transaction.rows(_FAILING)
    work(store, 2)
    store.close()


def test_enqueue_in_the_user_s_own_transaction(ways: Ways, store: SqlStore) -> None:
    engine = create_engine(ways.pooled, connect_args={"prepare_threshold": None})
    for outcome, jobs in (("rollback", 0), ("commit", 1)):
        with engine.connect() as mine:
            mine.execute(text("CREATE TABLE IF NOT EXISTS orders (number integer)"))
            store.enqueue(NewJob(task="work"), mine)
            getattr(mine, outcome)()
        assert sum(store.counts().values()) == jobs
    engine.dispose()


def test_a_client_that_gives_up_costs_only_itself(ways: Ways, pgbouncer: PgbouncerEndpoint) -> None:
    """The watchdog shuts the socket of a verb that waits for too long; the others do not notice."""
    impatient = open_postgres(ways.pooled, timeout_seconds=2)
    with pytest.raises(StoreUnavailable), impatient.statement() as transaction:
        transaction.cursor.execute("SELECT pg_sleep(600)")

    def works_again() -> bool:
        try:
            with impatient.statement() as transaction:
                return bool(transaction.cursor.execute("SELECT 1").fetchone() == (1,))
        except StoreUnavailable:  # this may take two seconds on a busy machine
            return False

    wait_until(works_again, what="its next statement is answered")
    impatient.close()
    assert pgbouncer.admin("SHOW VERSION")


def test_statements_are_prepared_on_a_server_and_not_through_a_pooler(ways: Ways) -> None:
    with pytest.raises(ConfigurationError, match="prepare_threshold"):
        open_postgres(ways.direct + "?prepare_threshold=many")
    for url, expected in (
        (ways.direct, 5),
        (ways.direct + "?prepare_threshold=0", None),
        (ways.direct + "?prepare_threshold=3", 3),
        (ways.pooled, None),
        (ways.pooled + "?prepare_threshold=3", 3),
    ):
        database = open_postgres(url)
        with database.engine.connect() as connection:
            driver = connection.connection.driver_connection
            assert driver is not None
            assert driver.prepare_threshold == expected
        database.close()


def test_unnoticed_pooler_ends_preparation_and_fails_no_enqueue(ways: Ways, monkeypatch: pytest.MonkeyPatch) -> None:
    """The store takes the pooler for a server: it prepares statements in one session and executes them in another."""
    given_up: list[PostgresDatabase] = []
    prepare_no_more = PostgresDatabase.prepare_no_more

    def give_up(database: PostgresDatabase) -> None:
        given_up.append(database)
        prepare_no_more(database)

    monkeypatch.setattr(PostgresDatabase, "prepare_no_more", give_up)
    with closing(open_store(ways.pooled + "?prepare_threshold=1", notify=False)) as store, ExitStack() as others:
        busy = [
            others.enter_context(closing(psycopg.connect(libpq_url(ways.pooled), prepare_threshold=None)))
            for _ in range(POOL_SIZE - 1)
        ]
        for round_ in range(30):
            for session in busy[: round_ % POOL_SIZE]:  # so that another session is free in each round
                session.execute("SELECT 1")
            store.enqueue(NewJob(task="work"))
            for session in busy:
                session.rollback()
        assert given_up == [store.database], "one statement was lost, and none after it"
        assert store.counts() == {"pending": 30}


def test_the_documented_configuration_is_in_transaction_mode() -> None:
    config = documented_configuration()
    assert config["pgbouncer"]["pool_mode"] == "transaction"
    assert "ignore_startup_parameters" not in config["pgbouncer"]
