"""What the scenes share: the store, the workers, the marketplaces, a voice, and the promises that turned out broken."""

from __future__ import annotations

import time
from collections.abc import Callable, Iterator
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any

from holdfast.cli.demo.crew import SERVE, Crew
from holdfast.cli.demo.names import GROUP, Names
from holdfast.cli.demo.voice import Voice
from holdfast.domain.errors import HoldfastError
from holdfast.domain.job import AuditEvent, Enqueued, Job, NewJob
from holdfast.domain.lifecycle import ACTIVE, TERMINAL
from holdfast.domain.manifest import defaults_of

if TYPE_CHECKING:
    from examples.price_watch.market_server import Market
    from holdfast.stores.sql_store import SqlStore

LEASE_SECONDS = 3.0  # a minute in real life; short, so that nobody waits long for the dead
PATIENCE_SECONDS = 45.0
LOOK_SECONDS = 0.1
ADA, GRACE = "ada", "grace"
DOORS = {ADA: "on the database itself", GRACE: "over HTTP"}


class Stalled(HoldfastError):
    """The story cannot go on."""


@dataclass(slots=True)
class Stage:
    store: SqlStore
    database: str  # its URL
    url: str  # of the control plane
    token: str = field(repr=False)  # for a worker there
    names: Names
    crew: Crew
    market: Market
    voice: Voice
    broken: list[str] = field(default_factory=list)

    def expect(self, kept: bool, promise: str) -> None:
        if not kept:
            self.broken.append(promise)

    def wait(self, condition: Callable[[], bool], what: str) -> None:
        """Until it is so. A worker that has ended, or too long a time, ends the story instead, with the reason."""
        deadline = time.monotonic() + PATIENCE_SECONDS
        while not condition():
            fallen = self.crew.fallen()
            if fallen is not None:
                raise Stalled(f"{what}: this did not happen, because worker {fallen} has ended. {self._words(fallen)}")
            if time.monotonic() > deadline:
                raise Stalled(f"{what}: this did not happen within {PATIENCE_SECONDS:.0f} s. {self._words(*DOORS)}")
            time.sleep(LOOK_SECONDS)

    def enqueue(self, task: str, payload: dict[str, Any], **options: Any) -> Enqueued:
        """As any client: the task's code is not here, its options are what the workers have announced of it."""
        name = f"{GROUP}.{task}"
        given = {"queue": self.names.queue_of(task), "task": name, "payload": payload, **options}
        known = self.store.announced(name)
        return self.store.enqueue(NewJob.from_options({**defaults_of(known, LEASE_SECONDS), **given}))

    def jobs(self) -> Iterator[Job]:
        """Every job of this demo."""
        for queue in self.names.queues:
            yield from self.store.jobs(queue=queue, limit=1_000).items

    def ended(self, *job_ids: str) -> bool:
        return all(self.store.job(job_id).state in TERMINAL for job_id in job_ids)

    def idle(self, queue: str) -> bool:
        return not self.store.jobs(queue=queue, states=ACTIVE, limit=1).items

    def event(self, job_id: str, name: str, attempt: int) -> AuditEvent | None:
        events = self.store.events(job_id)
        return next((event for event in events if event.event == name and event.attempt == attempt), None)

    def await_event(self, job_id: str, name: str, attempt: int, what: str) -> AuditEvent:
        self.wait(lambda: self.event(job_id, name, attempt) is not None, what)
        found = self.event(job_id, name, attempt)
        assert found is not None
        return found

    def called(self, worker: str | None) -> str:
        """ada for demo-1234-ada-9f0c…: what people call a worker."""
        short = (worker or "nobody").removeprefix(self.names.prefix)
        return short.rpartition("-")[0] or short

    def _words(self, *workers: str) -> str:
        logs = {name: self.crew.said(name) for name in (*workers, SERVE)}
        return "\n".join(["What was logged last:", *(f"{name}:\n{text}" for name, text in logs.items() if text)])
