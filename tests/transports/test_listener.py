"""The receiver: it rings for every burst, knows when it is deaf, and mends itself."""

import threading
from collections.abc import Callable, Iterator
from typing import Any

import psycopg
import pytest

from holdfast.domain.job import NewJob
from holdfast.stores.postgres_url import libpq_url
from holdfast.stores.sql_store import SqlStore
from holdfast.transports import pg_listen
from holdfast.transports.pg_listen import Listener, ListenerStatus
from holdfast.transports.sqlite_changes import ChangeCheck
from holdfast.wiring.sql import open_wake_up
from tests.chaos.databases import query
from tests.chaos.proxy import ForgetfulProxy
from tests.servers.waiting import DEADLINE_SECONDS, wait_until
from tests.transports.conftest import Ears

QUICK: dict[str, Any] = {
    "probe_every": DEADLINE_SECONDS,
    "probe_within": DEADLINE_SECONDS,
    "shortest_backoff": 0.05,
    "longest_backoff": 0.2,
}
LISTENERS = """
    SELECT pid FROM pg_stat_activity
    WHERE datname = current_database() AND pid <> pg_backend_pid() AND query LIKE '%probe:%'"""


class Heard:
    def __init__(self) -> None:
        self._rings: list[None] = []  # an append is atomic: listeners ring from threads of their own
        self.statuses: list[str] = []

    @property
    def rings(self) -> int:
        return len(self._rings)

    def ring(self) -> None:
        self._rings.append(None)

    def changed(self, status: ListenerStatus) -> None:
        self.statuses.append(str(status))


@pytest.fixture
def heard() -> Heard:
    return Heard()


@pytest.fixture
def listen(heard: Heard) -> Iterator[Callable[..., Listener]]:
    listeners: list[Listener] = []

    def listen(url: str, **options: Any) -> Listener:
        listener = Listener(libpq_url(url), heard.ring, changed=heard.changed, **{**QUICK, **options})
        listeners.append(listener)
        listener.start()
        return listener

    yield listen
    for listener in listeners:
        listener.close()


def wait_for(listener: Listener, status: str) -> None:
    wait_until(lambda: listener.status == status, what=f"the listener is {status}")


def wait_for_rings(heard: Heard, more_than: int) -> None:
    wait_until(lambda: heard.rings > more_than, what="it rings")


def test_it_rings_when_it_begins_and_for_every_job(
    listen: Callable[..., Listener], heard: Heard, store: SqlStore, postgres_url: str
) -> None:
    listener = listen(postgres_url)
    assert listener.status in ("starting", "listening")
    wait_for(listener, "listening")
    wait_for_rings(heard, 0)
    for _ in range(3):
        before = heard.rings
        store.enqueue(NewJob(task="work"))
        wait_for_rings(heard, before)
    assert heard.statuses == ["listening"]


def test_probes_ring_nobody(listen: Callable[..., Listener], heard: Heard, ears: Ears, postgres_url: str) -> None:
    """Two listeners that probe all the time: neither takes a probe for work, its own or the other's."""
    listeners = [listen(postgres_url, probe_every=0.02) for _ in range(2)]
    for listener in listeners:
        wait_for(listener, "listening")
    wait_until(lambda: heard.rings == 2, what="each has rung once, as it began")
    wait_until(lambda: len(ears.heard) >= 20, what="many probes")
    query(postgres_url, "NOTIFY holdfast")
    # They hear everything in one order: a ring for a probe would have come before these.
    wait_until(lambda: heard.rings >= 4, what="each rings for the job")
    assert heard.rings == 4
    assert [str(listener.status) for listener in listeners] == ["listening"] * 2


def test_a_killed_backend_is_replaced(
    listen: Callable[..., Listener], heard: Heard, store: SqlStore, postgres_url: str
) -> None:
    listener = listen(postgres_url)
    wait_for(listener, "listening")
    with psycopg.connect(libpq_url(postgres_url), autocommit=True) as axe:
        assert len(axe.execute(f"SELECT pg_terminate_backend(pid) FROM ({LISTENERS}) found").fetchall()) == 1
    wait_until(lambda: heard.statuses == ["listening", "degraded", "listening"], what="it recovers")
    before = heard.rings
    store.enqueue(NewJob(task="work"))
    wait_for_rings(heard, before)


def test_a_black_hole_is_noticed_and_left(
    listen: Callable[..., Listener], heard: Heard, store: SqlStore, proxy: ForgetfulProxy
) -> None:
    listener = listen(proxy.url, probe_every=0.2, probe_within=1.0)
    wait_for(listener, "listening")
    proxy.become_a_black_hole()
    wait_for(listener, "degraded")
    proxy.forward_again()
    wait_for(listener, "listening")
    before = heard.rings
    store.enqueue(NewJob(task="work"))
    wait_for_rings(heard, before)


def test_a_server_that_is_not_there_at_the_start(listen: Callable[..., Listener], heard: Heard) -> None:
    listener = listen("postgresql://nobody@127.0.0.1:1/jobs")
    wait_for(listener, "degraded")
    assert heard.rings == 0
    listener.close()
    assert listener.status == "off"
    assert heard.statuses == ["degraded", "off"]


@pytest.mark.parametrize("black_hole", [False, True])
def test_close_returns(listen: Callable[..., Listener], proxy: ForgetfulProxy, black_hole: bool) -> None:
    much_later = 10 * DEADLINE_SECONDS
    listener = listen(proxy.url, probe_every=much_later, probe_within=much_later)
    wait_for(listener, "listening")
    if black_hole:
        proxy.become_a_black_hole()
    closing = threading.Thread(target=listener.close, daemon=True)
    closing.start()
    closing.join(DEADLINE_SECONDS)
    assert not closing.is_alive(), "it waits for the server"
    assert listener.status == "off"
    listener.close()


def test_a_bell_that_breaks_does_not_make_it_deaf(postgres_url: str) -> None:
    rings = threading.Semaphore(0)

    def break_once() -> None:
        rings.release()
        if rings._value == 1:
            raise RuntimeError("broken bell")

    listener = Listener(libpq_url(postgres_url), break_once, **QUICK)
    listener.start()
    wait_until(lambda: rings._value >= 2, what="it rings again")
    wait_for(listener, "listening")
    listener.close()


def test_it_costs_nothing_but_the_probe(
    listen: Callable[..., Listener], heard: Heard, store: SqlStore, postgres_url: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    said: list[str] = []
    waits: list[float] = []
    send, wait = pg_listen._Ear.send, Listener._something_arrived

    def noted_send(self: pg_listen._Ear, statement: str) -> None:
        said.append(statement.partition(" ")[0])
        send(self, statement)

    def noted_wait(self: Listener, ear: pg_listen._Ear, within: float) -> bool:
        waits.append(within)
        return wait(self, ear, within)

    monkeypatch.setattr(pg_listen._Ear, "send", noted_send)
    monkeypatch.setattr(Listener, "_something_arrived", noted_wait)
    listener = listen(postgres_url, probe_every=3600.0, probe_within=3600.0)
    wait_for(listener, "listening")
    wait_for_rings(heard, 0)
    with psycopg.connect(libpq_url(postgres_url), autocommit=True) as onlooker:
        asked = "SELECT state_change FROM pg_stat_activity WHERE pid IN (" + LISTENERS.replace("\n", " ") + ")"
        before = onlooker.execute(asked).fetchall()
        store.enqueue(NewJob(task="work"))
        wait_for_rings(heard, 1)
        assert onlooker.execute(asked).fetchall() == before
        assert len(before) == 1
    assert said == ["SELECT", "LISTEN"]
    assert min(waits) > DEADLINE_SECONDS, "it sleeps until something comes, or the next probe is due"


def test_the_factory(postgres_url: str, heard: Heard, tmp_path: Any) -> None:
    assert open_wake_up(postgres_url, heard.ring, False) is None
    assert open_wake_up("sqlite://", heard.ring, True) is None
    listener = open_wake_up(postgres_url, heard.ring, True)
    assert isinstance(listener, Listener)
    wait_for_rings(heard, 0)
    listener.close()
    for notify in (False, True):
        assert isinstance(open_wake_up(f"sqlite:///{tmp_path}/a.db", heard.ring, notify), ChangeCheck)
