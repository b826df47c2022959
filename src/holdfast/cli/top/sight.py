"""One look at the whole fleet, taken again and again without costing the store much.

Every part is asked for by itself and remembers what it took: one that is slow (a million jobs wait, and they are
counted) is asked for less often, so that watching never takes more than a small share of a store's time, and aside, so
that the rest does not stand still. Between looks there is no transaction.
"""

from __future__ import annotations

import threading
import time
from collections.abc import Callable
from dataclasses import dataclass
from datetime import UTC, datetime, timedelta
from typing import TYPE_CHECKING, Any, Generic, TypeVar

from holdfast.cli.top.throughput import Meter, Throughput
from holdfast.domain.jsonable import to_json
from holdfast.domain.views import Listed, QueueView, SourceView, StateCount, Stuck, WorkerView

if TYPE_CHECKING:
    from holdfast.stores.sql_store import SqlStore

MOST_ROWS = 100
MOST_STUCK = 20
SHARE = 0.1  # of the time, that one part may take of the store
SLOW_SECONDS = 0.25

Value = TypeVar("Value")


@dataclass(frozen=True, slots=True)
class Sight:
    """What was seen; `at` is by the store's clock, as are all times in it."""

    at: datetime
    throughput: Throughput
    states: tuple[StateCount, ...]
    queues: tuple[QueueView, ...]
    workers: tuple[WorkerView, ...]
    running: tuple[Listed, ...]
    sources: tuple[SourceView, ...]
    stuck: tuple[Stuck, ...]

    def document(self) -> dict[str, Any]:
        flow = self.throughput
        rates = {
            name: round(flow.per_second(counts), 3)
            for name, counts in (("done", flow.done), ("failed", flow.failed), ("enqueued", flow.enqueued))
        }
        return {
            "at": self.at,
            "throughput": {
                "per_second": rates,
                "seconds": round(flow.seconds, 3),
                "at_least": flow.at_least,
                "done": flow.done,
                "failed": flow.failed,
                "enqueued": flow.enqueued,
            },
            "states": self.states,
            "queues": self.queues,
            "workers": self.workers,
            "running": [_running(item, self.at) for item in self.running],
            "sources": self.sources,
            "stuck": self.stuck,
        }


def _running(item: Listed, now: datetime) -> dict[str, Any]:
    job = item.job
    since = job.claimed_at or job.updated_at
    return {
        "id": job.id,
        "task": job.task,
        "queue": job.queue,
        "source": job.source,
        "attempt": job.attempt,
        "worker": job.lease_owner,
        "seconds": round(max((now - since).total_seconds(), 0.0), 3),
        "claimed_at": job.claimed_at,
        "lease_expires_at": job.lease_expires_at,
        "progress": to_json(job.progress),
    }


class Part(Generic[Value]):
    """The last answer, and when to ask again. One that has proved slow is asked for aside: the others go on, and its
    last answer stands meanwhile."""

    def __init__(self, ask: Callable[[], Value]) -> None:
        self._ask = ask
        self._due = 0.0
        self._value: Value | None = None
        self._took = 0.0
        self._aside: threading.Thread | None = None
        self._error: Exception | None = None

    def now(self) -> Value:
        if self._value is None:
            self._fetch()
        elif self._aside is not None:
            self._look_after(self._aside)
        elif time.monotonic() >= self._due:
            if self._took < SLOW_SECONDS:
                self._fetch()
            else:
                self._aside = threading.Thread(target=self._fetch_aside, daemon=True)
                self._aside.start()
        assert self._value is not None
        return self._value

    def _fetch(self) -> None:
        began = time.monotonic()
        self._value = self._ask()
        self._took = time.monotonic() - began
        self._due = began + self._took / SHARE

    def _fetch_aside(self) -> None:
        try:
            self._fetch()
        except Exception as error:  # told to who asks next
            self._error = error

    def _look_after(self, aside: threading.Thread) -> None:
        if aside.is_alive():
            return
        self._aside, error = None, self._error
        self._error = None
        if error is not None:
            raise error


class Watch:
    """Looked through by one thread."""

    def __init__(self, store: SqlStore) -> None:
        meter = Meter()
        self._meter = meter
        self._store_time = datetime.now(UTC)
        self._read_at = time.monotonic()
        self._flow = Part(lambda: meter.look(store))
        self._states = Part(lambda: tuple(store.state_counts()))
        self._queues = Part(lambda: tuple(store.queues()))
        self._workers = Part(lambda: tuple(store.workers()))
        self._running = Part(lambda: tuple(store.running(MOST_ROWS)))
        self._sources = Part(lambda: tuple(store.sources()))
        self._stuck = Part(lambda: tuple(store.stuck(MOST_STUCK)))

    def look(self) -> Sight:
        flow = self._flow.now()
        if self._meter.now is not None and self._meter.now != self._store_time:
            self._store_time, self._read_at = self._meter.now, time.monotonic()
        return Sight(
            self._store_time + timedelta(seconds=time.monotonic() - self._read_at),
            flow,
            self._states.now(),
            self._queues.now(),
            self._workers.now(),
            self._running.now(),
            self._sources.now(),
            self._stuck.now(),
        )
