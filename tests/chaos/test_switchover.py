"""A planned switchover to a standby: every client finds the new primary by itself."""

from collections.abc import Callable, Iterator
from contextlib import contextmanager, suppress
from functools import partial
from pathlib import Path

import pytest
from sqlalchemy import create_engine

from holdfast.domain.errors import StoreUnavailable
from holdfast.domain.job import NewJob
from holdfast.stores.upgrade import upgrade
from holdfast.throwaway.postgres import PostgresServer
from holdfast.wiring.http import open_control_plane
from tests.chaos.databases import connect, opened, query
from tests.chaos.proxy import ForgetfulProxy
from tests.remote.fleet import Fleet
from tests.servers.standby import Standby, switch_over, wait_until_streaming
from tests.servers.waiting import wait_until

TASK = """
@app.task
def work() -> str:
    return "done"
"""


@pytest.fixture
def pair() -> Iterator[tuple[PostgresServer, Standby]]:
    with PostgresServer({"synchronous_commit": "on"}) as primary:
        primary.create_database("jobs")
        engine = create_engine(primary.url("jobs"))
        upgrade(engine)
        engine.dispose()
        primary.stop()
        with Standby(primary) as standby:
            primary.start()
            wait_until_streaming(primary)
            yield primary, standby


def sessions(server: PostgresServer) -> list[int]:
    """Of clients with our database."""
    mine = "SELECT pid FROM pg_stat_activity WHERE datname = 'jobs' AND pid <> pg_backend_pid()"
    return [pid for (pid,) in query(server.url("jobs"), f"{mine} AND backend_type = 'client backend'")]


@contextmanager
def read_only(server: PostgresServer) -> Iterator[None]:
    """Every session of the server, also those that are open, as in a failover that is under way."""

    with connect(server.url(), autocommit=True) as operator:

        def switch(statement: str, value: str) -> None:
            operator.execute(f"ALTER SYSTEM {statement}")
            operator.execute("SELECT pg_reload_conf()")
            shown = "SHOW default_transaction_read_only"
            wait_until(lambda: operator.execute(shown).fetchone() == (value,), what="the setting is reloaded")

        switch("SET default_transaction_read_only = on", "on")
        try:
            yield
        finally:
            switch("RESET default_transaction_read_only", "off")


def works_again(enqueue: Callable[[], object]) -> Callable[[], bool]:
    """Whether an enqueue is acknowledged; anything but "unavailable" is a failure."""

    def works() -> bool:
        try:
            enqueue()
        except StoreUnavailable:
            return False
        return True

    return works


def have_succeeded(url: str, queue: str) -> bool:
    """The job from before the switchover and the one from after it."""
    count = f"SELECT count(*) FROM holdfast_jobs WHERE queue = '{queue}' AND state = 'succeeded'"
    return query(url, count) == [(2,)]


def assert_all_recover(fleet: Fleet, switch: Callable[[], None], lead_on: Callable[[], None]) -> None:
    """The producers, the control plane and both kinds of workers: none of them is restarted."""
    fleet.tasks(TASK)
    plane = fleet.plane()
    remote = open_control_plane(plane.url, fleet.token)
    fleet.worker("--processes", "1", "--queues", "direct")
    fleet.remote_worker(plane.url, "--queues", "remote")
    fleet.enqueue("work", queue="direct")
    remote.enqueue(NewJob(task="work", queue="remote"))
    fleet.wait_for_counts(succeeded=2)
    switch()
    for enqueue in (fleet.store.enqueue, remote.enqueue):
        with suppress(StoreUnavailable):  # the address still leads to the former primary
            enqueue(NewJob(task="work", queue="lost"))
    lead_on()
    direct = works_again(lambda: fleet.enqueue("work", queue="direct"))
    fleet.wait(direct, "a producer with the database works again")
    by_http = works_again(lambda: remote.enqueue(NewJob(task="work", queue="remote")))
    fleet.wait(by_http, "the control plane works again")
    for queue in ("direct", "remote"):
        fleet.wait(partial(have_succeeded, fleet.url, queue), f"the {queue} worker works again")
    remote.close()


def test_switchover_behind_one_address(pair: tuple[PostgresServer, Standby], tmp_path: Path) -> None:
    """As with a virtual IP, DNS or a proxy: for a while the address leads to what is now a standby."""
    primary, standby = pair
    with ForgetfulProxy(primary.url("jobs")) as proxy, Fleet(tmp_path, proxy.url) as fleet:
        assert_all_recover(fleet, lambda: switch_over(primary, standby), lambda: proxy.lead_to(standby.url("jobs")))


def test_switchover_with_a_url_of_two_hosts(pair: tuple[PostgresServer, Standby], tmp_path: Path) -> None:
    """Without target_session_attrs in the URL."""
    primary, standby = pair
    one = f"127.0.0.1:{primary.port}"
    url = (
        primary.url("jobs").replace("postgresql+psycopg", "postgresql").replace(one, f"{one},127.0.0.1:{standby.port}")
    )
    with Fleet(tmp_path, url) as fleet:
        assert_all_recover(fleet, lambda: switch_over(primary, standby), lambda: None)


@pytest.mark.parametrize("way", ["verb", "transaction"])
def test_session_that_became_read_only_is_replaced(pair: tuple[PostgresServer, Standby], way: str) -> None:
    primary, _standby = pair
    with opened(primary.url("jobs")) as store:
        job = NewJob(task="work", unique_key="k" if way == "transaction" else None)
        store.enqueue(NewJob(task="work"))
        [before] = sessions(primary)
        with read_only(primary), pytest.raises(StoreUnavailable):
            store.enqueue(job)
        store.enqueue(job)
        assert before not in sessions(primary)
