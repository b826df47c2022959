"""Jobs that keep coming while a test does something to the workers."""

from __future__ import annotations

import threading
from types import TracebackType
from typing import Self

from holdfast.domain.job import NewJob
from holdfast.stores.sql_store import SqlStore

EVERY_SECONDS = 0.1
MAX_PENDING = 20


class Load:
    """Enqueues a few jobs of each task several times a second, from the `with` to its end.

    It waits for workers that are slower than that: what they have left at the end takes them no long time.
    """

    def __init__(self, store: SqlStore, *tasks: str, each: int = 2) -> None:
        self.ids: list[str] = []
        self._store = store
        self._jobs = [NewJob(task=task) for task in tasks for _ in range(each)]
        self._over = threading.Event()
        self._error: Exception | None = None
        self._thread = threading.Thread(target=self._enqueue, name="load", daemon=True)

    def __enter__(self) -> Self:
        self._thread.start()
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self._over.set()
        self._thread.join()
        if error is None and self._error is not None:
            raise self._error

    def _enqueue(self) -> None:
        try:
            while not self._over.wait(EVERY_SECONDS):
                if self._store.counts().get("pending", 0) < MAX_PENDING:
                    self.ids += [answer.id for answer in self._store.enqueue_many(self._jobs)]
        except Exception as error:
            self._error = error
