"""The proxy of `holdfast torture`: it carries everything whole, and each fault hits what it says, and counts it."""

from __future__ import annotations

import http.client
import http.server
import queue
import socket
import struct
import threading
from collections.abc import Iterator
from contextlib import closing, suppress
from types import TracebackType

import psycopg
import pytest
from sqlalchemy import make_url

from holdfast.throwaway.process import free_port
from holdfast.torture.proxy import FaultProxy
from holdfast.torture.replies import after_commit_postgres, after_post_http
from tests.chaos.databases import conninfo
from tests.servers.waiting import DEADLINE_SECONDS, wait_until

HOUR = 3600.0
CHUNK = 65_536


class Talk:
    """One connection, seen from the server's side; whatever comes is sent back."""

    def __init__(self, connection: socket.socket, answers: bool) -> None:
        self.heard = b""
        self.ending: str | None = None
        self._connection = connection
        self._answers = answers
        threading.Thread(target=self._listen, daemon=True).start()

    def _listen(self) -> None:
        try:
            while data := self._connection.recv(CHUNK):
                self.heard += data
                if self._answers:
                    self._connection.sendall(data)
            self.ending = "end"
        except ConnectionResetError:
            self.ending = "reset"
        self._connection.close()


class Echo:
    def __init__(self, *, answers: bool = True) -> None:
        self._listener = socket.create_server(("127.0.0.1", 0), backlog=100)
        self._answers = answers
        self._talks: queue.SimpleQueue[Talk] = queue.SimpleQueue()
        threading.Thread(target=self._accept, daemon=True).start()

    @property
    def address(self) -> tuple[str, int]:
        return "127.0.0.1", self._listener.getsockname()[1]

    def talk(self) -> Talk:
        """The next connection that was made."""
        return self._talks.get(timeout=DEADLINE_SECONDS)

    def is_left_alone(self) -> bool:
        return self._talks.empty()

    def close(self) -> None:
        self._listener.close()

    def _accept(self) -> None:
        with suppress(OSError):
            while True:
                connection, _address = self._listener.accept()
                self._talks.put(Talk(connection, self._answers))


class Way(FaultProxy):
    """With the clients on it, who are gone when it is."""

    def __init__(self, target: tuple[str, int]) -> None:
        super().__init__(target, seed=1)
        self._clients: list[socket.socket] = []

    def dial(self) -> socket.socket:
        self._clients.append(socket.create_connection(self.address, timeout=DEADLINE_SECONDS))
        return self._clients[-1]

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        for client in self._clients:
            client.close()
        super().__exit__(kind, error, trace)


@pytest.fixture
def echo() -> Iterator[Echo]:
    with closing(Echo()) as echo:
        yield echo


@pytest.fixture
def proxy(echo: Echo) -> Iterator[Way]:
    with Way(echo.address) as proxy:
        yield proxy


def connected(proxy: Way, echo: Echo) -> tuple[socket.socket, Talk]:
    """A connection on which something has been said already."""
    client = proxy.dial()
    assert asked(client, b"hello") == b"hello"
    return client, echo.talk()


def asked(client: socket.socket, text: bytes) -> bytes:
    client.sendall(text)
    return read(client, len(text))


def read(client: socket.socket, size: int) -> bytes:
    found = b""
    while len(found) < size and (data := client.recv(size - len(found))):
        found += data
    return found


def is_reset(client: socket.socket) -> bool:
    try:
        client.recv(1)
    except ConnectionResetError:
        return True
    return False


def is_turned_away(proxy: Way) -> bool:
    """Whether connecting already says so is a matter of a moment."""
    try:
        with proxy.dial() as client:
            return is_reset(client)
    except ConnectionResetError:
        return True


def wait_for_reset(talk: Talk) -> None:
    wait_until(lambda: talk.ending == "reset", what="the server sees the reset")


def test_fifty_connections_arrive_whole_and_in_order(proxy: Way) -> None:
    text = bytes(range(256)) * 1024
    answers: list[bytes] = []

    def talk(number: int) -> None:
        with proxy.dial() as client:
            mine = bytes([number]) + text
            threading.Thread(target=client.sendall, args=(mine,), daemon=True).start()
            answers.append(read(client, len(mine)))

    threads = [threading.Thread(target=talk, args=(number,)) for number in range(50)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join(DEADLINE_SECONDS)
    assert sorted(answers) == sorted(bytes([number]) + text for number in range(50))
    wait_until(lambda: proxy.connections == 0, what="every connection has ended")


def test_the_end_of_one_direction_is_passed_on_and_the_other_goes_on(proxy: Way, echo: Echo) -> None:
    with proxy.dial() as client:
        client.sendall(b"last words")
        client.shutdown(socket.SHUT_WR)
        assert read(client, 100) == b"last words"
    assert echo.talk().ending == "end"


def test_a_target_that_is_away_is_a_reset(proxy: Way) -> None:
    proxy.retarget(("127.0.0.1", free_port()))
    assert is_turned_away(proxy)


def test_retargeting_leads_new_connections_elsewhere_and_leaves_the_others(proxy: Way, echo: Echo) -> None:
    old, _talk = connected(proxy, echo)
    with closing(Echo()) as another:
        proxy.retarget(another.address)
        connected(proxy, another)
    assert asked(old, b"still here") == b"still here"


def test_a_reset_is_seen_by_both_sides_of_every_connection(proxy: Way, echo: Echo) -> None:
    pairs = [connected(proxy, echo) for _ in range(3)]
    assert proxy.reset() == 3
    for client, talk in pairs:
        assert is_reset(client)
        wait_for_reset(talk)
        client.close()
    connected(proxy, echo)
    assert proxy.hits.reset == 3


def test_a_black_hole_tells_nobody_anything_and_leaves_half_open_connections(proxy: Way, echo: Echo) -> None:
    client, talk = connected(proxy, echo)
    leaving, left = connected(proxy, echo)
    assert proxy.black_hole() == 2
    client.sendall(b"lost")
    during = proxy.dial()
    during.sendall(b"nobody there")
    leaving.close()
    wait_until(lambda: proxy.hits.swallowed_bytes == 16, what="everything is swallowed")
    assert echo.is_left_alone()
    assert proxy.forward() == 3
    # It works again, for others.
    connected(proxy, echo)
    client.sendall(b"still nothing")
    wait_until(lambda: proxy.hits.swallowed_bytes == 29, what="it stays silent")
    assert (talk.heard, talk.ending) == (b"hello", None)
    assert (left.heard, left.ending) == (b"hello", None)
    # Until somebody's keepalive finds out.
    assert proxy.reset_silent() == 3
    assert is_reset(client)
    assert is_reset(during)
    wait_for_reset(talk)
    wait_for_reset(left)


def test_what_was_sent_during_a_short_partition_arrives_after_it(proxy: Way, echo: Echo) -> None:
    client, talk = connected(proxy, echo)
    assert proxy.black_hole(resume=True) == 1
    client.sendall(b"first ")
    during = proxy.dial()
    during.sendall(b"me too")
    client.sendall(b"second")
    wait_until(lambda: proxy.connections == 2, what="the new connection is accepted")
    assert echo.is_left_alone()
    assert talk.heard == b"hello"
    assert proxy.forward() == 2
    assert read(client, 12) == b"first second"
    assert read(during, 6) == b"me too"
    assert proxy.hits.swallowed_bytes == 0


def test_a_slow_way_delivers_late_and_in_order(proxy: Way, echo: Echo) -> None:
    client, talk = connected(proxy, echo)
    assert proxy.slow(HOUR, 0.0) == 1
    client.sendall(b"one ")
    wait_until(lambda: proxy.hits.slowed_chunks == 1, what="the first chunk waits")
    proxy.slow(0.0, 0.0, chance=0.0)  # what comes later is quick, and has to wait all the same
    client.sendall(b"two")
    assert talk.heard == b"hello"
    proxy.full_speed()
    assert read(client, 7) == b"one two"
    assert (proxy.hits.slowed, proxy.hits.slowed_chunks) == (1, 1)


def test_delays_are_as_long_and_as_frequent_as_asked_for(proxy: Way, echo: Echo) -> None:
    client, _talk = connected(proxy, echo)
    proxy.slow(0.001, 0.004, chance=0.5)
    for _ in range(40):
        assert asked(client, b"tick") == b"tick"
    assert 10 < proxy.full_speed() < 70  # of eighty chunks about half: the seed decides
    assert asked(client, b"tock") == b"tock"


def test_who_sends_faster_than_it_is_delivered_is_held_up(proxy: Way, echo: Echo) -> None:
    client, _talk = connected(proxy, echo)
    proxy.slow(HOUR, 0.0)
    client.settimeout(1.0)
    with pytest.raises(TimeoutError):
        client.sendall(bytes(64 * 1024 * 1024))


def test_refused_connections_are_counted_and_those_before_go_on(proxy: Way, echo: Echo) -> None:
    before, _talk = connected(proxy, echo)
    assert proxy.refuse() == 0
    for _ in range(3):
        assert is_turned_away(proxy)
    assert asked(before, b"still here") == b"still here"
    assert proxy.admit() == 3
    connected(proxy, echo)


def test_a_reply_is_cut_after_its_request_was_heard(proxy: Way, echo: Echo) -> None:
    pairs = [connected(proxy, echo) for _ in range(3)]
    assert proxy.cut_replies(2) == 3
    for client, talk in pairs[:2]:
        client.sendall(b"do it")
        assert is_reset(client)
        assert talk.heard == b"hellodo it"
    assert asked(pairs[2][0], b"and again") == b"and again"
    assert proxy.keep_replies() == 2


def test_replies_that_were_not_cut_in_time_are_kept(proxy: Way, echo: Echo) -> None:
    client, _talk = connected(proxy, echo)
    proxy.cut_replies(5)
    assert proxy.keep_replies() == 0
    assert asked(client, b"fine") == b"fine"


def test_closing_ends_everything_and_the_port_is_free(echo: Echo) -> None:
    with Way(echo.address) as proxy:
        client, talk = connected(proxy, echo)
        proxy.black_hole()
        proxy.close()
        assert is_reset(client)
    wait_for_reset(talk)
    socket.create_server(proxy.address).close()


# Postgres and HTTP


@pytest.fixture
def postgres_way(postgres_database: str) -> Iterator[tuple[FaultProxy, str]]:
    """A proxy before a real server, and how to connect through it."""
    url = make_url(postgres_database)
    with FaultProxy((url.host or "", url.port or 0)) as proxy:
        changed = url.set(host=proxy.address[0], port=proxy.port).render_as_string(hide_password=False)
        yield proxy, conninfo(changed)


def rows(url: str) -> list[int]:
    with psycopg.connect(conninfo(url), autocommit=True) as connection:
        return [row[0] for row in connection.execute("SELECT x FROM t ORDER BY x")]


@pytest.fixture
def table(postgres_database: str) -> str:
    with psycopg.connect(conninfo(postgres_database), autocommit=True) as connection:
        connection.execute("CREATE TABLE t (x int)")
    return postgres_database


def test_postgres_has_committed_when_the_reply_is_cut(postgres_way: tuple[FaultProxy, str], table: str) -> None:
    proxy, way = postgres_way
    proxy.cut_replies(2, after_commit_postgres)
    with psycopg.connect(way) as connection:  # sign-on ends with "ready", too, and is none
        connection.execute("INSERT INTO t VALUES (1)")
        connection.rollback()  # and so does this
        connection.execute("INSERT INTO t VALUES (%s)", (2,))
        assert proxy.hits.cut == 0
        with pytest.raises(psycopg.OperationalError):
            connection.commit()
    with psycopg.connect(way, autocommit=True) as connection, pytest.raises(psycopg.OperationalError):
        connection.execute("INSERT INTO t VALUES (%s)", (3,))
    with psycopg.connect(way, autocommit=True) as connection:
        connection.execute("INSERT INTO t VALUES (%s)", (4,))
    assert proxy.keep_replies() == 2
    assert rows(table) == [2, 3, 4]


def test_a_prepared_statement_is_recognised_too(postgres_way: tuple[FaultProxy, str], table: str) -> None:
    proxy, way = postgres_way
    with psycopg.connect(way, autocommit=True, prepare_threshold=0) as connection:
        for number in range(3):
            connection.execute("INSERT INTO t VALUES (%s)", (number,))
        proxy.cut_replies(1, after_commit_postgres)
        with pytest.raises(psycopg.OperationalError):
            connection.execute("INSERT INTO t VALUES (%s)", (3,))
    assert rows(table) == [0, 1, 2, 3]


class Counter(http.server.BaseHTTPRequestHandler):
    protocol_version = "HTTP/1.1"
    posted: list[bytes]

    def do_GET(self) -> None:
        self._answer()

    def do_POST(self) -> None:
        type(self).posted.append(self.rfile.read(int(self.headers["Content-Length"])))
        self._answer()

    def log_message(self, *_arguments: object) -> None: ...

    def _answer(self) -> None:
        self.send_response(200)
        self.send_header("Content-Length", "2")
        self.end_headers()
        self.wfile.write(b"ok")


def test_http_replies_are_cut_to_posts_alone() -> None:
    Counter.posted = []
    with http.server.ThreadingHTTPServer(("127.0.0.1", 0), Counter) as server:
        threading.Thread(target=server.serve_forever, daemon=True).start()
        with FaultProxy(("127.0.0.1", server.server_port)) as proxy:
            proxy.cut_replies(1, after_post_http)
            client = http.client.HTTPConnection(*proxy.address, timeout=DEADLINE_SECONDS)
            for _ in range(2):
                client.request("GET", "/")
                assert client.getresponse().read() == b"ok"
            client.request("POST", "/", body=b"x" * 300_000)
            with pytest.raises(ConnectionResetError):
                client.getresponse()
            client.close()
            client.request("POST", "/", body=b"y")
            assert client.getresponse().read() == b"ok"
            client.close()
            assert proxy.keep_replies() == 1
        server.shutdown()
    assert [len(body) for body in Counter.posted] == [300_000, 1]


def test_idle_connection_is_closed_and_one_with_a_request_under_way_is_not() -> None:
    with closing(Echo()) as echo, FaultProxy(echo.address) as proxy:
        idle, busy = (socket.create_connection(proxy.address, timeout=DEADLINE_SECONDS) for _ in range(2))
        for client in (idle, busy):
            client.sendall(b"hello")
            assert client.recv(5) == b"hello"
        proxy.slow(seconds=HOUR, jitter=0.0)
        busy.sendall(b"again")
        wait_until(lambda: proxy.hits.slowed_chunks == 1, what="the request is on its way")
        assert proxy.close_idle() == 1
        assert idle.recv(1) == b""
        proxy.full_speed()
        assert busy.recv(5) == b"again"
        assert proxy.hits.closed == 1
        idle.close()
        busy.close()


def test_an_end_that_is_due_to_a_side_that_has_just_reset_goes_nowhere_and_breaks_nothing() -> None:
    with closing(Echo()) as echo, FaultProxy(echo.address) as proxy:
        client = socket.create_connection(proxy.address)
        client.sendall(b"hello")
        assert client.recv(5) == b"hello"

        def reset_and_end() -> None:
            """In the loop's own thread, so that it cannot have heard of the one before it does the other."""
            client.setsockopt(socket.SOL_SOCKET, socket.SO_LINGER, struct.pack("ii", 1, 0))
            client.close()
            for line in proxy._lines:
                line.client._write(None)

        proxy._done(reset_and_end)
        wait_until(lambda: proxy.connections == 0, what="the connection is gone")
