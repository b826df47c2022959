"""Which sessions of Postgres are used again, and what is raised when there is none."""

from __future__ import annotations

import socket
import time
from collections.abc import Iterator
from types import SimpleNamespace
from typing import Any

import pytest
from sqlalchemy.exc import TimeoutError as PoolTimeout

from holdfast.domain.errors import StoreUnavailable
from holdfast.stores.postgres import raise_if_away
from holdfast.stores.postgres_session import MADE, MAX_AGE_SECONDS, MAX_IDLE_SECONDS, is_fit

UNKNOWN = 0.0


class Session:
    """The client's end of a connection, and the server's."""

    def __init__(self) -> None:
        self.client, self.server = socket.socketpair()
        self.connection: Any = SimpleNamespace(pgconn=SimpleNamespace(socket=self.client.fileno()))

    def close(self) -> None:
        self.client.close()
        self.server.close()


@pytest.fixture
def session() -> Iterator[Session]:
    session = Session()
    yield session
    session.close()


def test_session_that_is_too_old_is_not_used_again(session: Session) -> None:
    now = time.monotonic()
    assert is_fit(session.connection, {MADE: now}, UNKNOWN)
    assert not is_fit(session.connection, {MADE: now - MAX_AGE_SECONDS - 1}, UNKNOWN)
    assert not is_fit(session.connection, {MADE: now - MAX_AGE_SECONDS - 1}, now), "not even in the midst of its work"


def test_session_that_was_idle_for_too_long_is_not_used_again(session: Session) -> None:
    now = time.monotonic()
    assert is_fit(session.connection, {MADE: now}, now)
    assert not is_fit(session.connection, {MADE: now}, now - MAX_IDLE_SECONDS - 1)


def test_session_that_the_server_has_closed_is_not_used_again(session: Session) -> None:
    session.server.close()
    assert not is_fit(session.connection, {MADE: time.monotonic()}, UNKNOWN)


def test_session_without_a_socket_is_not_used_again(session: Session) -> None:
    session.connection.pgconn.socket = -1
    assert not is_fit(session.connection, {MADE: time.monotonic()}, UNKNOWN)


def test_pool_that_stays_in_use_is_a_store_that_is_away() -> None:
    error = PoolTimeout("QueuePool limit of size 5 overflow 0 reached")
    with pytest.raises(StoreUnavailable, match=r"^every connection to Postgres stayed in use for too long$") as raised:
        raise_if_away(error)
    assert raised.value.__cause__ is error


def test_error_that_says_nothing_about_the_server_is_left_to_the_caller() -> None:
    raise_if_away(ValueError("of the caller's own"))
