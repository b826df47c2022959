"""What only a store on Postgres needs. Imported when there is one: without psycopg an embedded worker starts sooner."""

from __future__ import annotations

import select
from collections.abc import Callable
from contextlib import ExitStack
from typing import TYPE_CHECKING

import psycopg
from psycopg.pq import ExecStatus

from holdfast.stores.postgres import PostgresDatabase, open_postgres
from holdfast.stores.postgres_url import SESSION_KIND, libpq_url
from holdfast.transports import pg_probe
from holdfast.transports.pg_listen import Listener
from holdfast.transports.pg_notify import NOTIFY, Notifier

if TYPE_CHECKING:
    from psycopg.pq.abc import PGconn, PGresult
    from sqlalchemy import URL, Engine

    from holdfast.stores.database import Database
    from holdfast.transports.pg_probe import Hearing

__all__ = ["from_engine", "hearing", "notifier", "open_for_reading", "open_postgres", "start_listener"]


def from_engine(engine: Engine) -> Database:
    return PostgresDatabase(engine)


def open_for_reading(url: URL, timeout_seconds: float) -> Database:
    """One connection, to a standby too: it is examined, not written."""
    if SESSION_KIND not in url.query:
        url = url.update_query_dict({SESSION_KIND: "any"})
    return open_postgres(url, timeout_seconds=timeout_seconds, pool_size=1)


def notifier(database: Database) -> Notifier:
    """Past psycopg's own machinery, which takes longer than the server does; it is on the way to every pickup."""

    def send() -> None:
        with database.statement() as transaction:
            _check(transaction.cursor.connection.pgconn.exec_(NOTIFY.encode()))

    def begin() -> Callable[[], None] | None:
        """On the connection that was used last, whose session is awake."""
        lent = database.lent_at_once() if isinstance(database, PostgresDatabase) else None
        if lent is None:
            return None
        with ExitStack() as held:
            connection = held.enter_context(lent).cursor.connection.pgconn
            connection.send_query(NOTIFY.encode())
            connection.flush()
            until_answered = held.pop_all()

        def finish() -> None:
            with until_answered:
                _wait_for_answer(connection)

        return finish

    return Notifier(send, begin)


def _check(answer: PGresult) -> None:
    if answer.status != ExecStatus.COMMAND_OK:
        raise psycopg.OperationalError(answer.error_message.decode(errors="replace"))


def _wait_for_answer(connection: PGconn) -> None:
    """To what was sent by `send_query`."""
    waiting = select.poll()
    waiting.register(connection.socket, select.POLLIN)
    while True:
        while connection.is_busy():
            waiting.poll()
            connection.consume_input()
        answer = connection.get_result()
        if answer is None:
            return
        _check(answer)


def start_listener(url: str | URL, ring: Callable[[], None], status: Callable[[str], None]) -> Listener:
    listener = Listener(libpq_url(url), ring, changed=status)
    listener.start()
    return listener


def hearing(database: Database, listen_url: str, within: float) -> Hearing:
    """Whether a notification of this store would wake somebody who listens at that URL."""

    def send(statement: str) -> None:
        with database.statement() as transaction:
            transaction.cursor.execute(statement)

    return pg_probe.hearing(libpq_url(listen_url, session="any"), send, within)
