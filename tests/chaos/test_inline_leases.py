"""`app.work()` keeps the lease of its job through errors of the store, and stops the job when it cannot."""

import logging
import threading
import uuid
from collections.abc import Iterator
from concurrent.futures import Future, ThreadPoolExecutor
from contextlib import contextmanager
from typing import Protocol

import pytest
from sqlalchemy import make_url

from holdfast import App, Context
from holdfast.domain.lifecycle import State
from holdfast.stores.sql_store import SqlStore
from holdfast.torture.proxy import FaultProxy
from tests.chaos.databases import assert_verified, query
from tests.servers.waiting import DEADLINE_SECONDS, wait_until

SHORT, LONG = 3.0, 600.0
ROLE = f"inline_worker_{uuid.uuid4().hex}"  # roles are those of the whole server, also for tests beside these


@contextmanager
def limited_role(url: str) -> Iterator[str]:
    """The URL of a role that owns nothing, so that a right can be taken from it."""
    database = make_url(url).database
    query(url, f"CREATE ROLE {ROLE} LOGIN PASSWORD 'secret'")
    query(url, f"GRANT ALL ON ALL TABLES IN SCHEMA public TO {ROLE}")
    try:
        yield make_url(url).set(username=ROLE, password="secret").render_as_string(hide_password=False)
    finally:
        query(url, f'REVOKE ALL ON DATABASE "{database}" FROM {ROLE}')
        query(url, f"DROP OWNED BY {ROLE}")
        query(url, f"DROP ROLE {ROLE}")


class Holding:
    """A job of an app that runs in a thread of this process until it is told to end."""

    def __init__(self, url: str, lease: float) -> None:
        self.app = App(url, lease=lease)
        self.end = threading.Event()
        self._started: Future[Context] = Future()
        self.app.task(self.hold)
        self.job_id = self.app.tasks["hold"].enqueue().id
        self._threads = ThreadPoolExecutor(1)
        self.work: Future[int] = self._threads.submit(self.app.work)
        self.context = self._started.result(DEADLINE_SECONDS)

    def hold(self, ctx: Context) -> None:
        self._started.set_result(ctx)
        assert self.end.wait(300)

    def finish(self) -> int:
        self.end.set()
        return self.work.result(DEADLINE_SECONDS)

    def close(self) -> None:
        self.end.set()
        self._threads.shutdown()
        self.app.close()


class Hold(Protocol):
    def __call__(self, url: str, lease: float = ...) -> Holding: ...


@pytest.fixture
def hold() -> Iterator[Hold]:
    made: list[Holding] = []

    def start(url: str, lease: float = SHORT) -> Holding:
        made.append(Holding(url, lease))
        return made[-1]

    yield start
    for holding in made:
        holding.close()


def wait_for_heartbeat(store: SqlStore, job_id: str) -> None:
    before = store.job(job_id).heartbeat_at
    wait_until(lambda: store.job(job_id).heartbeat_at != before, what="the lease is renewed")


def test_heartbeats_survive_an_error_of_the_driver(
    postgres_url: str, postgres_store: SqlStore, hold: Hold, caplog: pytest.LogCaptureFixture
) -> None:
    with limited_role(postgres_url) as url, caplog.at_level(logging.WARNING, "holdfast"):
        holding = hold(url, LONG)
        query(postgres_url, f"REVOKE UPDATE ON holdfast_jobs FROM {ROLE}")
        holding.context.progress(0.1)  # progress is sent at once, by a heartbeat
        wait_until(lambda: "permission denied" in caplog.text, what="a heartbeat fails")
        before = postgres_store.job(holding.job_id).heartbeat_at
        query(postgres_url, f"GRANT UPDATE ON holdfast_jobs TO {ROLE}")
        wait_until(lambda: postgres_store.job(holding.job_id).heartbeat_at != before, what="the lease is renewed")
        assert holding.finish() == 1
        assert postgres_store.job(holding.job_id).state is State.SUCCEEDED
        holding.close()
    assert_verified(postgres_url)


def test_job_is_requested_to_stop_before_its_lease_ends(
    postgres_url: str, postgres_store: SqlStore, hold: Hold
) -> None:
    with limited_role(postgres_url) as url:
        holding = hold(url)
        query(postgres_url, f"REVOKE UPDATE ON holdfast_jobs FROM {ROLE}")
        wait_until(lambda: holding.context.cancelled, what="the job is requested to stop")
        assert holding.context.cancel_reason == "lease_lost"
        query(postgres_url, f"GRANT UPDATE ON holdfast_jobs TO {ROLE}")
        wait_for_heartbeat(postgres_store, holding.job_id)  # no other worker runs what still runs here
        assert holding.finish() == 1
        holding.close()
    assert_verified(postgres_url)


def test_job_is_requested_to_stop_while_a_heartbeat_blocks(
    postgres_url: str, postgres_store: SqlStore, hold: Hold
) -> None:
    url = make_url(postgres_url)
    with FaultProxy((str(url.host), int(url.port or 5432))) as proxy:
        host, port = proxy.address
        holding = hold(url.set(host=host, port=port).render_as_string(hide_password=False))
        wait_for_heartbeat(postgres_store, holding.job_id)
        proxy.black_hole(resume=True)
        wait_until(lambda: holding.context.cancelled, what="the job is requested to stop")
        assert holding.context.cancel_reason == "lease_lost"
        proxy.forward()
        assert holding.finish() == 1
        holding.close()
    assert_verified(postgres_url)
