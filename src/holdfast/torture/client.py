"""`python -m holdfast.torture.client`: a program that enqueues, cancels and requeues, and writes down what it is told.

Every job has an id before anybody is asked to take it, so that a call whose answer was lost can be made again until
there is one. What it had asked for when it was killed may exist or not. What it does is decided by the seed of the run
and by how often it was started; when the answers come is not.
"""

from __future__ import annotations

import random
import sys
import time
from collections import deque
from collections.abc import Sequence
from contextlib import closing
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import httpx
from sqlalchemy.exc import DBAPIError

from holdfast.domain.errors import HoldfastError, StoreUnavailable
from holdfast.domain.job import Enqueued, NewJob
from holdfast.domain.lifecycle import State
from holdfast.remote.store import RemoteStore
from holdfast.settings import Settings
from holdfast.stores.ids import new_ids
from holdfast.stores.sql_store import SqlStore
from holdfast.stores.statements.words import POSTGRES
from holdfast.tasks.home import AppStore
from holdfast.torture import tasks
from holdfast.torture.errand import Errand, errand
from holdfast.torture.notes import Acknowledged, Intended, Notebook, Operated, Unavailable
from holdfast.wiring.http import open_control_plane
from holdfast.wiring.redis import published
from holdfast.wiring.sql import open_store

DATABASE, HTTP, REMOTE = "database", "http", "remote"  # REMOTE: HTTP with our own client
MOST_WAITING = 3_000  # beyond that it lets the workers catch up
BATCH = 40
UNIQUE_KEYS = 12
LONGEST_ANSWER_SECONDS = 10.0
REST_SECONDS = 0.25  # after a call that failed
LOOK_SECONDS = 1.0
REMEMBERED = 500

# Of a hundred jobs that are not the bulk, about so many are of each task.
MIX = {
    "steady": 22, "awaited": 18, "flaky": 14, "snoozing": 10, "metered": 12, "narrow": 10, "program": 4, "hopeless": 8,
    "poison": 2,
}  # fmt: skip


@dataclass(frozen=True, slots=True)
class Wish:
    """Jobs of one task that somebody is still to accept."""

    door: str
    jobs: tuple[dict[str, Any], ...]  # as `NewJob.from_options` takes them

    @property
    def task(self) -> str:
        return str(self.jobs[0]["task"])

    @property
    def ids(self) -> list[str]:
        return [job["id"] for job in self.jobs]


class Client:
    def __init__(self, options: Errand) -> None:
        self._options = options
        self._chance = random.Random(f"{options.seed}-{options.name}-{options.life}")
        self._notebook = Notebook(Path(options.notes), options.name)
        self._store: AppStore | None = None
        self._base: SqlStore | None = None
        self._http = httpx.Client(
            headers={"Authorization": f"Bearer {options.token}"}, timeout=LONGEST_ANSWER_SECONDS, trust_env=False
        )
        self._remotes: dict[str, RemoteStore] = {}
        self._wishes: deque[Wish] = deque()
        self._known: deque[str] = deque(maxlen=REMEMBERED)
        self._owed_bulk = self._owed_mixed = 0.0
        self._number = 0
        self._looked_at = 0.0
        self._is_full = False

    def run(self) -> None:
        """Until it is killed, like everybody here."""
        last = time.monotonic()
        while True:
            now = time.monotonic()
            self._owe(min(now - last, 2.0))
            last = now
            try:
                self._step()
            except (HoldfastError, DBAPIError, httpx.HTTPError, _Refused):
                time.sleep(REST_SECONDS)
            time.sleep(0.05)

    def _owe(self, seconds: float) -> None:
        if self._is_full:
            return
        self._owed_bulk += self._options.bulk_per_second * seconds
        self._owed_mixed += self._options.mixed_per_second * seconds

    def _step(self) -> None:
        self._look()
        while self._owed_bulk >= BATCH:
            self._owed_bulk -= BATCH
            self._wish([self._new("quick", tasks.BULK, {}) for _ in range(BATCH)])
        while self._owed_mixed >= 1:
            self._owed_mixed -= 1
            self._wish([self._mixed()])
        while self._wishes:
            self._ask(self._wishes[0])
            self._wishes.popleft()
        if self._known and self._chance.random() < 0.15:
            self._operate()

    def _look(self) -> None:
        if time.monotonic() - self._looked_at < LOOK_SECONDS:
            return
        self._looked_at = time.monotonic()
        counts = self._opened().state_counts(tasks.QUEUES, most=MOST_WAITING)
        waiting = sum(count.count for count in counts if count.state in (State.PENDING, State.RETRYABLE))
        self._is_full = waiting >= MOST_WAITING

    # what to enqueue

    def _new(self, task: str, queue: str, payload: dict[str, Any], **options: Any) -> dict[str, Any]:
        self._number += 1
        full = task if task in ("hopeless", "poison") else f"tough.{task}"
        chosen = tasks.app.tasks[full].resolved_options()
        known = {name: value for name, value in chosen.items() if name in ("max_attempts", "max_crashes", "source")}
        return {
            "task": full,
            "payload": {"number": self._number, **payload},
            "queue": queue,
            "id": new_ids(1)[0],
            "retry": {"kind": "fixed", "base": 1.0},
            "lease_seconds": self._options.lease_seconds,
            **known,
            **options,
        }

    def _mixed(self) -> dict[str, Any]:
        task = self._chance.choices(list(MIX), list(MIX.values()))[0]
        lease = self._options.lease_seconds
        payload: dict[str, Any] = {}
        if task in ("steady", "awaited"):
            payload = {"seconds": round(self._chance.choice((0.1, 0.3, 0.8, 1.5)) * lease, 3)}
        elif task == "flaky":
            payload = {"failures": self._chance.randint(1, 3)}
        options: dict[str, Any] = {"priority": self._chance.choice((-5, 0, 0, 0, 5))}
        if task == "awaited" and self._chance.random() < 0.4:
            options["unique_key"] = f"one-of-{self._chance.randrange(UNIQUE_KEYS)}"
        if self._chance.random() < 0.1:
            options["delay"] = round(self._chance.uniform(0.1, 2 * lease), 3)
        return self._new(task, tasks.MIXED, payload, **options)

    def _wish(self, jobs: Sequence[dict[str, Any]]) -> None:
        wish = Wish(self._chance.choice((DATABASE, DATABASE, DATABASE, HTTP, REMOTE)), tuple(jobs))
        self._notebook.write(Intended(wish.ids, wish.task))
        self._wishes.append(wish)

    # asking

    def _ask(self, wish: Wish) -> None:
        ways = {DATABASE: self._ask_database, HTTP: self._ask_http, REMOTE: self._ask_remote}
        ids = ways[wish.door](wish)
        self._notebook.write(Acknowledged(ids, wish.task, wish.door))
        self._known.extend(ids[:3])

    def _ask_database(self, wish: Wish) -> list[str]:
        store = self._opened()
        jobs = [NewJob.from_options(job) for job in wish.jobs]
        base = self._base
        if base is not None and base.database.dialect == POSTGRES and self._chance.random() < 0.2:
            with base.database.engine.begin() as connection:  # the user's own transaction
                answers = store.enqueue_many(jobs, connection)
        else:
            answers = self._enqueue(store, wish, jobs)
        return [answer.id for answer in answers]

    def _ask_remote(self, wish: Wish) -> list[str]:
        plane = self._chance.choice(self._options.planes)
        if plane not in self._remotes:
            self._remotes[plane] = open_control_plane(
                plane, self._options.token, timeout_seconds=LONGEST_ANSWER_SECONDS, connections=1
            )
        jobs = [NewJob.from_options(job) for job in wish.jobs]
        return [answer.id for answer in self._enqueue(self._remotes[plane], wish, jobs)]

    def _enqueue(self, store: AppStore | RemoteStore, wish: Wish, jobs: list[NewJob]) -> list[Enqueued]:
        began = time.monotonic()
        try:
            return store.enqueue_many(jobs)
        except StoreUnavailable as error:
            seconds = round(time.monotonic() - began, 3)
            self._notebook.write(Unavailable(wish.ids, wish.task, wish.door, seconds, str(error)))
            raise

    def _ask_http(self, wish: Wish) -> list[str]:
        sent = [{_HTTP_NAMES.get(name, name): value for name, value in job.items()} for job in wish.jobs]
        url = f"{self._chance.choice(self._options.planes)}/api/v1/jobs/batch"
        answer = self._http.post(url, json={"jobs": sent})
        if answer.status_code not in (200, 201):
            raise _Refused(answer)
        try:
            return [job["id"] for job in answer.json()["jobs"]]
        except (ValueError, TypeError, KeyError) as error:  # a page of something on the way
            raise _Refused(answer) from error

    def _operate(self) -> None:
        """A cancel of something that may wait, run or have ended; a requeue of something that has failed."""
        store, job_id = self._opened(), self._chance.choice(self._known)
        job = store.job(job_id)
        if job.state in (State.FAILED, State.CANCELLED):
            if job.task == "poison":
                return
            answer, verb = store.requeue([job_id])[0], "requeue"
        elif job.task == "tough.quick":
            return
        else:
            answer, verb = store.cancel([job_id])[0], "cancel"
        self._notebook.write(Operated(job_id, verb, answer.ok, None if answer.state is None else str(answer.state)))

    def _opened(self) -> AppStore:
        if self._store is None:
            self._base = open_store(
                self._options.database_url, create=False, timeout_seconds=LONGEST_ANSWER_SECONDS, pool_size=2
            )
            settings = Settings(database_url=self._options.database_url, redis_url=self._options.redis_url)
            self._store = published(self._base, settings)
        return self._store

    def close(self) -> None:
        self._http.close()
        for remote in self._remotes.values():
            remote.close()
        if self._store is not None:
            self._store.close()
        self._notebook.close()


_HTTP_NAMES = {"delay": "delay_seconds"}


class _Refused(Exception):
    """The control plane is away, its store is, or something between sent the response."""

    def __init__(self, answer: httpx.Response) -> None:
        super().__init__(f"{answer.status_code}: {answer.text[:500]}")
        if 400 <= answer.status_code < 500 and answer.status_code != 429:
            print(self, file=sys.stderr)  # that one is our own mistake, and its log says so


def main() -> int:
    with closing(Client(errand())) as client:
        client.run()
    return 0


if __name__ == "__main__":
    sys.exit(main())
