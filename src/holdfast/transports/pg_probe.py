"""Whether a notification that is sent by one way is heard on another: asked once, by `holdfast doctor`."""

from __future__ import annotations

import time
import uuid
from collections.abc import Callable
from contextlib import closing
from enum import StrEnum

import psycopg

from holdfast.transports.pg_listen import PROBE
from holdfast.transports.pg_notify import CHANNEL


class Hearing(StrEnum):
    HEARD = "heard"
    SILENT = "silent"  # the listener has a session of its own, but the notification did not arrive
    POOLED = "pooled"  # the listener has no session of its own


def hearing(conninfo: str, send: Callable[[str], None], within: float) -> Hearing:
    """`send` executes a statement on the way that the store's own notifications take."""
    connection = psycopg.connect(conninfo, autocommit=True, prepare_threshold=None, connect_timeout=max(2, int(within)))
    with closing(connection):
        row = connection.execute("SELECT pg_backend_pid()").fetchone()
        if row is None or row[0] != connection.info.backend_pid:
            return Hearing.POOLED
        connection.execute(f"LISTEN {CHANNEL}")
        payload = PROBE + uuid.uuid4().hex
        send(f"NOTIFY {CHANNEL}, '{payload}'")
        deadline = time.monotonic() + within
        while (left := deadline - time.monotonic()) > 0:
            for notification in connection.notifies(timeout=left, stop_after=1):
                if notification.payload == payload:
                    return Hearing.HEARD
    return Hearing.SILENT
