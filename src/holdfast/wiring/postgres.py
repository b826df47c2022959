"""What only a store on Postgres needs. Imported when there is one: without psycopg an embedded worker starts sooner."""

from __future__ import annotations

from collections.abc import Callable
from typing import TYPE_CHECKING

import psycopg
from psycopg.pq import ExecStatus

from holdfast.stores.postgres import PostgresDatabase, libpq_url, open_postgres
from holdfast.transports import pg_probe
from holdfast.transports.pg_listen import Listener
from holdfast.transports.pg_notify import NOTIFY, Notifier

if TYPE_CHECKING:
    from sqlalchemy import URL, Engine

    from holdfast.stores.database import Database
    from holdfast.transports.pg_probe import Hearing

__all__ = ["from_engine", "hearing", "notifier", "open_postgres", "start_listener"]


def from_engine(engine: Engine) -> Database:
    return PostgresDatabase(engine)


def notifier(database: Database) -> Notifier:
    def send() -> None:
        """Past psycopg's own machinery, which takes longer than the server does; it is on the way to every pickup."""
        with database.statement() as transaction:
            answer = transaction.cursor.connection.pgconn.exec_(NOTIFY.encode())
            if answer.status != ExecStatus.COMMAND_OK:
                raise psycopg.OperationalError(answer.error_message.decode(errors="replace"))

    return Notifier(send)


def start_listener(url: str | URL, ring: Callable[[], None], status: Callable[[str], None]) -> Listener:
    listener = Listener(libpq_url(url), ring, changed=status)
    listener.start()
    return listener


def hearing(database: Database, listen_url: str, within: float) -> Hearing:
    """Whether a notification of this store would wake somebody who listens at that URL."""

    def send(statement: str) -> None:
        with database.statement() as transaction:
            transaction.cursor.execute(statement)

    return pg_probe.hearing(libpq_url(listen_url), send, within)
