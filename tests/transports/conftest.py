"""A fresh Postgres database with Holdfast's tables, and somebody who hears what is notified in it."""

import threading
import time
from collections.abc import Iterator
from contextlib import contextmanager

import psycopg
import pytest

from holdfast.stores.postgres_url import libpq_url
from holdfast.stores.sql_store import SqlStore
from holdfast.wiring.sql import open_store
from tests.chaos.conftest import postgres_template, postgres_url, sqlite_url, store_url
from tests.chaos.proxy import ForgetfulProxy

__all__ = ["postgres_template", "postgres_url", "sqlite_url", "store_url"]


class Ears:
    """An independent listener: every payload on the channel, in order."""

    def __init__(self, url: str) -> None:
        self._connection = psycopg.connect(libpq_url(url), autocommit=True)
        self._connection.execute("LISTEN holdfast")
        self._closing = threading.Event()
        self.heard: list[str] = []
        self.last_heard_at = 0.0
        self._thread = threading.Thread(target=self._listen, daemon=True)
        self._thread.start()

    @property
    def rung(self) -> int:
        return sum(1 for payload in self.heard if payload == "")

    def close(self) -> None:
        self._closing.set()
        self._thread.join()
        self._connection.close()

    def _listen(self) -> None:
        while not self._closing.is_set():
            for notification in self._connection.notifies(timeout=0.05):
                self.heard.append(notification.payload)
                self.last_heard_at = time.monotonic()


@pytest.fixture
def ears(postgres_url: str) -> Iterator[Ears]:
    ears = Ears(postgres_url)
    yield ears
    ears.close()


@pytest.fixture
def store(postgres_url: str) -> Iterator[SqlStore]:
    store = open_store(postgres_url)
    yield store
    store.close()


@pytest.fixture
def proxy(postgres_url: str) -> Iterator[ForgetfulProxy]:
    with ForgetfulProxy(postgres_url) as proxy:
        yield proxy


@contextmanager
def opened(url: str, **options: bool) -> Iterator[SqlStore]:
    store = open_store(url, **options)
    try:
        yield store
    finally:
        store.close()
