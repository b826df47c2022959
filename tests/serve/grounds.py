"""A control plane that really listens, over a database of its own, with a token of every scope."""

from __future__ import annotations

import uuid
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from typing import Any

import httpx

from holdfast.domain.events import Events
from holdfast.domain.job import NewJob
from holdfast.domain.tokens import NewToken, Scope
from holdfast.serve.options import ServeSettings
from holdfast.serve.running import ControlPlane
from holdfast.stores.sql_store import SqlStore
from holdfast.wiring.sql import open_store
from tests.serve import http

WORKER = "/internal/worker"


@dataclass(frozen=True)
class Served:
    """`store` is the test's own way to the same database."""

    url: str
    database_url: str
    store: SqlStore
    tokens: dict[str, str]  # by scope
    control: ControlPlane

    def client(self, scope: str = "worker", token: str | None = None) -> httpx.Client:
        return http.client(base_url=self.url, headers=bearer(token or self.tokens[scope]), verify=False)

    def new_token(self, *scopes: str, queues: tuple[str, ...] | None = None) -> str:
        return new_token(self.store, *scopes, queues=queues)

    def enqueue(self, queue: str, count: int = 1, **options: Any) -> list[str]:
        jobs = [NewJob(task="send", payload={"number": number}, queue=queue, **options) for number in range(count)]
        return [answer.id for answer in self.store.enqueue_many(jobs)]


def bearer(token: str) -> dict[str, str]:
    return {"Authorization": f"Bearer {token}"}


def new_token(store: SqlStore, *scopes: str, queues: tuple[str, ...] | None = None) -> str:
    name = f"{'-'.join(scopes)}-{uuid.uuid4().hex[:8]}"
    return store.create_token(NewToken(name, tuple(Scope(scope) for scope in scopes), queues)).text


@contextmanager
def serving(database_url: str, events: Events | None = None, **settings: Any) -> Iterator[Served]:
    """On any free port of the loopback. Periodic duties are off unless asked for: tests are about requests."""
    store = open_store(database_url)
    try:
        tokens = {str(scope): new_token(store, scope) for scope in Scope}
        chosen = {"port": 0, "duties": False, "poll_seconds": 0.5, "stop_seconds": 60.0, **settings}
        control = ControlPlane(ServeSettings(database_url=database_url, **chosen), events)
        control.start()
        try:
            yield Served(control.url, database_url, store, tokens, control)
        finally:
            control.stop()
    finally:
        store.close()
