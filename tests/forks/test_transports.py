"""Background threads, Redis clients and files in a forked child."""

import json
import sqlite3
import threading
import uuid
from collections.abc import Callable, Iterator
from contextlib import closing, contextmanager
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path
from typing import Any, cast

import pytest
from sqlalchemy.pool import QueuePool

from holdfast.domain.job import NewJob
from holdfast.forks import gate
from holdfast.remote.line import Line
from holdfast.remote.secret import Secret
from holdfast.stores import ids
from holdfast.stores.cache_file import CacheFile
from holdfast.stores.sqlite import SqliteDatabase, open_sqlite
from holdfast.throwaway.valkey import ValkeyEndpoint
from holdfast.transports import pg_notify
from holdfast.transports.sqlite_changes import ChangeCheck
from holdfast.wiring.sql import open_store
from tests.forks.child import in_child
from tests.servers.waiting import DEADLINE_SECONDS, wait_until
from tests.transports.conftest import Ears, ears
from tests.transports.streaming import Fleet

__all__ = ["ears"]

JOB = NewJob(task="noop")


@pytest.fixture
def streams(sqlite_url: str, valkey_server: ValkeyEndpoint) -> Iterator[Fleet]:
    with Fleet(sqlite_url, valkey_server.url, uuid.uuid4().hex) as fleet:
        yield fleet


@contextmanager
def held_by_another_thread(lock: Any) -> Iterator[None]:
    held, over = threading.Event(), threading.Event()

    def hold() -> None:
        with lock:
            held.set()
            over.wait()

    holder = threading.Thread(target=hold)
    holder.start()
    held.wait()
    try:
        yield
    finally:
        over.set()
        holder.join()


def within_deadline(act: Callable[[], object]) -> bool:
    """Run in a thread, because `act` may wait for a lock for ever."""
    done: list[object] = []
    thread = threading.Thread(target=lambda: done.append(act()), daemon=True)
    thread.start()
    thread.join(DEADLINE_SECONDS)
    return bool(done and done[0])


def has_thread(name: str) -> bool:
    return any(thread.name == name for thread in threading.enumerate())


def test_child_that_is_forked_during_notification_sends_its_own(
    postgres_url: str, ears: Ears, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(pg_notify, "FLUSH_SECONDS", DEADLINE_SECONDS)  # the child ends, and must have sent it by then
    with closing(open_store(postgres_url)) as store:
        store.enqueue(JOB)
        wait_until(lambda: ears.rung > 0, what="a notification of the parent")
        heard = ears.rung
        notifier: Any = store._claimable.__self__  # type: ignore[attr-defined]
        with held_by_another_thread(notifier._changed):

            def enqueue() -> bool:
                store.enqueue(JOB)
                store.close()
                return True

            assert in_child(lambda: within_deadline(enqueue))
        wait_until(lambda: ears.rung > heard, what="a notification of the child")


def test_forked_child_starts_its_own_watchdog_at_its_first_connection(postgres_url: str) -> None:
    with closing(open_store(postgres_url, timeout_seconds=DEADLINE_SECONDS)) as store:
        job = store.enqueue(JOB)

        def read() -> bool:
            is_idle = not has_thread("holdfast-watchdog")
            return store.job(job.id).id == job.id and is_idle and has_thread("holdfast-watchdog")

        assert in_child(read)
        assert store.job(job.id).id == job.id


def test_child_that_is_forked_during_publishing_publishes_its_own_messages(streams: Fleet) -> None:
    streams.store.enqueue(JOB)
    streams.flush()
    publisher = streams.transport.publisher
    with held_by_another_thread(publisher._changed):

        def publish() -> bool:
            streams.store.enqueue(JOB)
            return publisher.flush(DEADLINE_SECONDS)

        assert in_child(lambda: within_deadline(publish))
    assert len(streams.claim(limit=10)) == 2


def test_forked_child_does_not_publish_pending_messages_of_its_parent(streams: Fleet) -> None:
    streams.store.enqueue(JOB)
    streams.flush()
    publisher = streams.transport.publisher
    publisher._offers.append(("default", "pending", 1))
    assert in_child(lambda: not publisher._offers)
    assert len(publisher._offers) == 1


def test_redis_clients_of_parent_and_forked_child_have_connections_of_their_own(streams: Fleet) -> None:
    client = streams.transport.streams.link.client
    mine = client.client_id()
    assert in_child(lambda: streams.transport.streams.link.client.client_id() != mine)
    assert client.client_id() == mine


def test_sqlite_connections_are_closed_before_fork_and_opened_again(tmp_path: Path) -> None:
    path = tmp_path / "jobs.db"
    database, cache, check = open_sqlite(f"sqlite:///{path}"), CacheFile(tmp_path / "cache.db"), ChangeCheck(path)
    with closing(database), closing(cache), closing(check):
        with database.transaction():
            pass
        cache.keep_cached("source", "key", 1, 3600.0)
        check.changed()
        pool: Any = database.engine.pool
        assert pool.checkedin() == 1
        assert in_child(lambda: not pool.checkedin() and not cache._connection and not check._connection)
        found = cache.cached("source", "key")
        assert found is not None
        assert found.value == 1
        with database.transaction():
            pass


def test_thread_that_waits_for_end_of_fork_leaves_no_connection_behind(tmp_path: Path) -> None:
    def read() -> bool:
        with database.reading():
            return True

    with closing(open_sqlite(f"sqlite:///{tmp_path / 'jobs.db'}")) as database:
        read()
        pool = cast(QueuePool, database.engine.pool)
        waiting = threading.Thread(target=read)
        gate.close()
        waiting.start()
        wait_until(lambda: bool(gate._changed._waiters), what="a thread waits")  # type: ignore[attr-defined]
        database._before_fork()
        gate.open()
        waiting.join()
        assert database.engine.pool is pool
        assert pool.checkedin() == 1
        assert in_child(lambda: within_deadline(read))


def is_refused(database: SqliteDatabase) -> bool:
    with pytest.raises(Exception, match="was forked while"), database.reading():
        pass
    return True


def test_child_that_is_forked_inside_sqlite_transaction_is_refused(tmp_path: Path) -> None:
    with closing(open_sqlite(f"sqlite:///{tmp_path / 'jobs.db'}")) as database:
        with database.transaction():
            assert in_child(lambda: is_refused(database))
        with database.reading():
            pass


def test_each_child_that_is_forked_inside_sqlite_transaction_is_refused(tmp_path: Path) -> None:
    with closing(open_sqlite(f"sqlite:///{tmp_path / 'jobs.db'}")) as database, database.transaction():
        assert in_child(lambda: is_refused(database))
        assert in_child(lambda: is_refused(database))


def test_child_that_inherits_callers_connection_to_sqlite_file_is_refused(tmp_path: Path) -> None:
    path = tmp_path / "jobs.db"
    with closing(open_sqlite(f"sqlite:///{path}")) as database:
        with database.reading():
            pass
        with closing(sqlite3.connect(path)) as connection:
            connection.execute("PRAGMA schema_version").fetchone()
            assert in_child(lambda: is_refused(database))


def test_sqlite_connection_counts_once_when_another_thread_was_quicker(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """SQLAlchemy's pool then calls itself again. A connection that stays counted delays every later fork."""
    refusals = [False]
    open_another = QueuePool._inc_overflow
    monkeypatch.setattr(QueuePool, "_inc_overflow", lambda pool: refusals.pop() if refusals else open_another(pool))
    with closing(open_sqlite(f"sqlite:///{tmp_path / 'jobs.db'}")) as database:
        before = len(gate._users)
        for _ in range(2):
            with database.reading():
                assert len(gate._users) == before + 1
        assert not refusals
        assert len(gate._users) == before


def test_child_that_is_forked_while_another_thread_makes_ids_makes_ids() -> None:
    with held_by_another_thread(ids._lock):
        assert in_child(lambda: within_deadline(lambda: ids.new_ids(1)))


class _Ports(BaseHTTPRequestHandler):
    """Answers with the client's port, which tells connections apart."""

    protocol_version = "HTTP/1.1"

    def do_GET(self) -> None:
        body = json.dumps({"port": self.client_address[1]}).encode()
        self.send_response(200)
        self.send_header("Content-Length", str(len(body)))
        self.end_headers()
        self.wfile.write(body)

    def log_message(self, *_: object) -> None:
        pass


def test_http_connection_of_parent_is_not_used_by_forked_child() -> None:
    with ThreadingHTTPServer(("127.0.0.1", 0), _Ports) as server:
        threading.Thread(target=server.serve_forever, daemon=True).start()
        url = f"http://127.0.0.1:{server.server_port}"
        with closing(Line(url, Secret("token"), timeout_seconds=DEADLINE_SECONDS, connections=1)) as line:
            before = line.get("/")["port"]

            def get_and_hang_up() -> bool:
                line.hang_up()  # of the child alone
                return True

            assert in_child(get_and_hang_up)
            assert in_child(lambda: line.get("/")["port"] != before)
            assert line.get("/")["port"] == before
        server.shutdown()
