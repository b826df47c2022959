"""A disk that is full: what was acknowledged is kept, the rest is refused, and all goes on once there is room."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
import uuid
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import psycopg
import pytest
from sqlalchemy import create_engine

from holdfast.domain.answers import Status
from holdfast.domain.errors import StoreUnavailable
from holdfast.domain.job import Claimed, NewJob
from holdfast.domain.outcome import Report, Succeeded
from holdfast.stores.checkpoint import LOOK_EVERY_COMMITS, THRESHOLD_BYTES
from holdfast.stores.sql_store import SqlStore
from holdfast.stores.upgrade import upgrade
from holdfast.throwaway import workdir
from holdfast.throwaway.postgres import PostgresServer
from holdfast.torture.small_disk import MEBIBYTE, SmallDisk
from tests.chaos.databases import assert_verified, connect, opened
from tests.servers.waiting import wait_until

REFUSALS = 5
PAYLOAD = {"text": "x" * 2000}
# A server that keeps its promises: what it has acknowledged is on the disk.
SETTINGS = {
    "fsync": "on",
    "full_page_writes": "on",
    "synchronous_commit": "on",
    "max_wal_size": "64MB",
    "min_wal_size": "32MB",
    "shared_buffers": "32MB",
    "max_connections": "40",
}

pytestmark = pytest.mark.skipif(SmallDisk.available() is not None, reason=f"{SmallDisk.available()}")


@pytest.fixture(scope="module")
def disk() -> Iterator[SmallDisk]:
    with SmallDisk(256 * MEBIBYTE) as disk:
        yield disk


@pytest.fixture(scope="module")
def server(disk: SmallDisk) -> Iterator[PostgresServer]:
    """Its data is on the disk, and a database is in it that can be copied."""
    with PostgresServer(SETTINGS, data_dir=disk.path / "data") as server:
        server.create_database("upgraded")
        engine = create_engine(server.url("upgraded"))
        upgrade(engine)
        engine.dispose()
        yield server


@pytest.fixture
def url(server: PostgresServer) -> str:
    name = f"jobs_{uuid.uuid4().hex}"
    server.create_database(name, "upgraded")
    return server.url(name)


def is_mounted(path: Path) -> bool:
    return any(str(path) in line.split() for line in Path("/proc/mounts").read_text().splitlines())


def test_a_full_disk_has_no_room_and_a_freed_one_has_it_again() -> None:
    with SmallDisk(8 * MEBIBYTE) as disk:
        assert is_mounted(disk.path)
        before = disk.free_bytes
        assert disk.fill() == before
        with pytest.raises(OSError, match="No space left"):
            (disk.path / "more").write_bytes(b"x")
        assert disk.fill() == 0
        assert disk.free() == before
        assert disk.free() == 0
        (disk.path / "more").write_bytes(b"x")
    assert not is_mounted(disk.path)
    assert not disk.path.exists()
    disk.close()


def test_a_disk_whose_owner_was_killed_is_swept_at_the_next_start(monkeypatch: pytest.MonkeyPatch) -> None:
    code = "from holdfast.torture.small_disk import SmallDisk; print(SmallDisk(1 << 20).path, flush=True); input()"
    owner = subprocess.Popen([sys.executable, "-c", code], stdin=subprocess.PIPE, stdout=subprocess.PIPE)
    assert owner.stdout is not None
    path = Path(owner.stdout.readline().decode().strip())
    try:
        monkeypatch.setattr(workdir, "STALE_AFTER_SECONDS", 0.0)
        SmallDisk(MEBIBYTE).close()
        assert is_mounted(path)  # it lives: its disk is its own
    finally:
        owner.send_signal(signal.SIGKILL)
        owner.communicate()
    assert is_mounted(path)
    SmallDisk(MEBIBYTE).close()
    assert not is_mounted(path)
    assert not path.parent.exists()


class Client:
    """Somebody who enqueues, claims and completes, and remembers what was acknowledged."""

    def __init__(self, store: SqlStore) -> None:
        self._store = store
        self.accepted: list[str] = []
        self.refusals: list[str] = []
        self.leases: list[Claimed] = []
        self.completed: list[str] = []

    def enqueue_until_refused(self) -> None:
        refusals = len(self.refusals)
        while len(self.refusals) < refusals + REFUSALS:
            with self._remembered():
                self.accepted.append(self._store.enqueue(NewJob(task="note", payload=PAYLOAD)).id)
            with self._remembered():
                answers = self._store.enqueue_many([NewJob(task="note", payload=PAYLOAD)] * 3)
                self.accepted += [answer.id for answer in answers]

    def work(self) -> None:
        """One claim and one report, whatever comes of them. What was not answered may have been done all the same."""
        with self._remembered():
            self.leases += self._store.claim("ann", 2)
        with self._remembered():
            reports = [
                Report(lease.job_id, lease.attempt, lease.lease_token, Succeeded(PAYLOAD), "ann")
                for lease in self.leases
            ]
            for lease, answer in zip(self.leases, self._store.settle(reports), strict=True):
                assert answer.status in (Status.APPLIED, Status.REPLAYED), answer
                self.completed.append(lease.job_id)
            self.leases = []

    def assert_kept(self) -> None:
        """Every job that was acknowledged is there, and every one whose completion was is completed."""
        assert [self._store.job(job_id).id for job_id in self.accepted] == self.accepted
        assert {self._store.job(job_id).state for job_id in self.completed} == {"succeeded"}

    def _remembered(self) -> Refusals:
        return Refusals(self.refusals)


class Refusals:
    """Nothing but StoreUnavailable is a refusal."""

    def __init__(self, refusals: list[str]) -> None:
        self._refusals = refusals

    def __enter__(self) -> None: ...

    def __exit__(self, kind: type[BaseException] | None, error: BaseException | None, _trace: object) -> bool:
        if isinstance(error, StoreUnavailable):
            self._refusals.append(str(error))
            return True
        return False


def goes_on(store: SqlStore) -> bool:
    try:
        store.enqueue(NewJob(task="afterwards"))
    except StoreUnavailable:
        return False
    return True


def use_up_the_log(connection: psycopg.Connection[tuple[Any, ...]]) -> None:
    """File by file, until the server needs a new one."""
    while True:
        connection.execute("SELECT pg_switch_wal(), pg_logical_emit_message(true, 'x', 'y')")


def live_through_it(store: SqlStore, disk: SmallDisk) -> Client:
    """Up to the moment that there is room again."""
    client = Client(store)
    for _ in range(5):
        client.accepted.append(store.enqueue(NewJob(task="note", payload=PAYLOAD)).id)
        client.work()
    assert client.refusals == []
    disk.fill()
    client.enqueue_until_refused()
    for _ in range(REFUSALS):
        client.work()
    return client


def test_postgres_without_room_refuses_and_goes_on_when_there_is_some(disk: SmallDisk, url: str) -> None:
    with opened(url) as store:
        client = live_through_it(store, disk)
        assert all("No space left on device" in refusal for refusal in client.refusals), client.refusals
        disk.free()
        assert goes_on(store)
        client.work()
        client.assert_kept()
    assert_verified(url)


def test_postgres_that_ended_for_want_of_room_for_its_log_has_lost_nothing(
    disk: SmallDisk, server: PostgresServer, url: str
) -> None:
    with opened(url) as store:
        client = live_through_it(store, disk)
        with connect(url, autocommit=True) as connection, pytest.raises(psycopg.OperationalError):
            use_up_the_log(connection)
        wait_until(lambda: not server.is_running, what="the server has given up")
        client.enqueue_until_refused()
        disk.free()
        server.restart("immediate")
        assert goes_on(store)
        client.work()
        client.assert_kept()
    assert_verified(url)


def test_sqlite_without_room_refuses_and_goes_on_when_there_is_some() -> None:
    with SmallDisk(16 * MEBIBYTE) as disk:
        url = f"sqlite:///{disk.path / 'jobs.db'}"
        with opened(url) as store:
            client = live_through_it(store, disk)
            disk.free()
            assert goes_on(store)
            client.work()
            client.assert_kept()
        assert_verified(url)


def test_what_sqlite_refuses_is_not_there_also_when_it_was_a_checkpoint_that_found_no_room() -> None:
    with SmallDisk(32 * MEBIBYTE) as disk:
        url = f"sqlite:///{disk.path / 'jobs.db'}"
        with opened(url) as store:
            long = [NewJob(task="note", payload={"text": "x" * 10_000})] * (2 * THRESHOLD_BYTES // 10_000)
            store.enqueue_many(long)  # in the log, and not yet in the file
            disk.fill(leave=MEBIBYTE)
            accepted, refusals = [], list[str]()
            for _ in range(2 * LOOK_EVERY_COMMITS):
                with Refusals(refusals):
                    accepted.append(store.enqueue(NewJob(task="note")).id)
            assert accepted
            with pytest.raises(StoreUnavailable):
                store.database.checkpoint()  # it was due, and could not be
            disk.free()
            assert store.database.checkpoint()
            assert store.counts() == {"pending": len(long) + len(accepted)}
        assert_verified(url)


def test_sqlite_file_that_is_opened_while_there_is_no_room_is_away() -> None:
    with SmallDisk(16 * MEBIBYTE) as disk:
        url = f"sqlite:///{disk.path / 'jobs.db'}"
        with opened(url) as store:
            kept = store.enqueue(NewJob(task="note")).id
        disk.fill()
        client_saw: list[str] = []
        with Refusals(client_saw), opened(url) as store:
            store.enqueue(NewJob(task="note"))
        assert len(client_saw) == 1
        disk.free()
        with opened(url) as store:
            assert store.job(kept).state == "pending"
            assert store.counts() == {"pending": 1}
        assert_verified(url)


def test_unprivileged_users_are_told_why_there_is_none(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(os, "geteuid", lambda: 1000)
    assert SmallDisk.available() == "only root may mount a disk"
