"""A fleet on one database and one Redis: stores whose jobs travel in messages, threads that work, a sweeper."""

from __future__ import annotations

import threading
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from types import TracebackType
from typing import Any, Self, cast

import redis

from holdfast.domain.job import Claimed, NewJob
from holdfast.domain.outcome import Outcome, Report, Succeeded
from holdfast.ports import Store
from holdfast.stores.sql_store import SqlStore
from holdfast.transports.redis_streams.options import Names, StreamOptions
from holdfast.transports.redis_streams.sweeper import Sweeper
from holdfast.transports.redis_streams.transport import Transport
from holdfast.wiring.redis import open_transport, streamed
from holdfast.wiring.sql import open_store
from tests.chaos.databases import assert_verified
from tests.servers.waiting import DEADLINE_SECONDS, wait_until

NEVER_SECONDS = 100_000.0
# Redis is away only where a test takes it away, and not where an answer takes long.
PATIENT = {"timeout_seconds": DEADLINE_SECONDS, "sweep_timeout_seconds": DEADLINE_SECONDS}


class Fleet:
    """Its store never looks for itself: nothing but a message leads to a job, unless Redis is away."""

    def __init__(self, url: str, redis_url: str, prefix: str, **options: Any) -> None:
        self.url = url
        self.options = StreamOptions(
            url=redis_url, prefix=prefix, **{"window": 300, "takeover_seconds": 0.3} | PATIENT | options
        )
        self.names = Names(prefix)
        self.redis: Any = redis.Redis.from_url(redis_url)
        self.transport: Transport = open_transport(self.options)
        self.plain: SqlStore = open_store(url)
        self.store = cast(Store, streamed(self.plain, self.transport, look_seconds=NEVER_SECONDS))
        if not self.plain.counts():
            assert self.store.claim("nobody") == []  # its first look; the next one is far away
        self.sweeper = Sweeper(lambda: self.plain, self.options)
        self._errors: list[BaseException] = []

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self.transport.close()
        self.sweeper.close()
        self.plain.close()
        self.redis.close()

    # jobs

    def enqueue(self, count: int, store: Any = None, **options: Any) -> list[str]:
        jobs = [NewJob(task="add", payload={"number": number}, **options) for number in range(count)]
        ids = [answer.id for answer in (store or self.store).enqueue_many(jobs)]
        self.flush()
        return ids

    def claim(self, worker: str = "ann", limit: int = 10, **wanted: Any) -> list[Claimed]:
        return self.store.claim(worker, limit, **wanted)

    def finish(self, jobs: Sequence[Claimed], outcome: Outcome | None = None) -> None:
        self.store.settle([report(job, outcome) for job in jobs])
        self.flush()

    def flush(self) -> None:
        assert self.transport.publisher.flush(DEADLINE_SECONDS)

    def sweep(self) -> int:
        return sum(self.sweeper.steps())

    # what is in Redis

    def length(self, queue: str = "default") -> int:
        return int(self.redis.xlen(self.names.stream(queue)))

    def pending(self, queue: str = "default") -> int:
        groups = self.redis.xinfo_groups(self.names.stream(queue)) if self.length_known(queue) else []
        return sum(group["pending"] for group in groups)

    def length_known(self, queue: str) -> bool:
        return bool(self.redis.exists(self.names.stream(queue)))

    def messages(self, queue: str = "default") -> list[tuple[str, dict[bytes, bytes]]]:
        return [(found.decode(), fields) for found, fields in self.redis.xrange(self.names.stream(queue))]

    def send(self, *job_ids: str, queue: str = "default") -> list[str]:
        """By hand."""
        self.redis.sadd(self.names.queues, queue)
        stream = self.names.stream(queue)
        return [self.redis.xadd(stream, {"job_id": job_id, "enqueue_id": "1"}).decode() for job_id in job_ids]

    def dead(self) -> list[dict[bytes, bytes]]:
        return [fields for _id, fields in self.redis.xrange(self.names.dead)]

    def assert_quiet(self) -> None:
        """Sooner or later nothing is left in Redis."""

        def quiet() -> bool:
            self.sweep()
            return self.length() == 0 and self.pending() == 0

        wait_until(quiet, what="the stream and its pending list are empty")

    # people at work

    @contextmanager
    def working(self, threads: int = 2, limit: int = 25, sweep_seconds: float = 0.1) -> Iterator[None]:
        """Threads that claim and finish, and one that sweeps and reaps, until the block ends."""
        over = threading.Event()

        def work(number: int) -> None:
            while not over.is_set():
                jobs = self.store.claim(f"worker-{number}", limit)
                if jobs:
                    self.store.settle([report(job) for job in jobs])
                else:
                    over.wait(0.02)

        def tend(_number: int) -> None:
            while not over.wait(sweep_seconds):
                self.sweep()

        crew = [threading.Thread(target=self._guarded, args=(work, number)) for number in range(threads)]
        crew.append(threading.Thread(target=self._guarded, args=(tend, 0)))
        for thread in crew:
            thread.start()
        try:
            yield
        finally:
            over.set()
            for thread in crew:
                thread.join()
        assert not self._errors, self._errors

    def _guarded(self, act: Callable[[int], None], number: int) -> None:
        try:
            act(number)
        except BaseException as error:
            self._errors.append(error)

    def wait_done(self, count: int) -> None:
        wait_until(lambda: self.done() >= count, what=f"{count} jobs have succeeded")

    def done(self) -> int:
        assert not self._errors, self._errors
        return self.plain.counts().get("succeeded", 0)

    def assert_each_once(self, count: int) -> None:
        assert self.plain.counts() == {"succeeded": count}
        assert_verified(self.url)

    def server(self) -> str:
        info = self.redis.info("server")
        return f"{info.get('server_name', 'redis')} {info.get('valkey_version') or info['redis_version']}"


def report(job: Claimed, outcome: Outcome | None = None) -> Report:
    return Report(job.job_id, job.attempt, job.lease_token, outcome or Succeeded(1), "ann", message_id=job.message_id)
