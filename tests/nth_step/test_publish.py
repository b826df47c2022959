"""Messages are hints: whatever question to Redis gets lost on the way, nobody who enqueues or reports hears of it, and
the next sweep makes of the streams and queues what they should be."""

from __future__ import annotations

import uuid
from collections.abc import Callable, Iterator
from contextlib import closing, contextmanager
from dataclasses import dataclass, replace
from pathlib import Path
from shutil import copy
from typing import Any, cast
from urllib.parse import urlsplit

import pytest
import redis
from rq import Queue

from holdfast.domain.outcome import Report, Succeeded
from holdfast.ports import Store
from holdfast.stores.sql_store import SqlStore
from holdfast.stores.sqlite import open_sqlite
from holdfast.throwaway.valkey import ValkeyEndpoint
from holdfast.transports.redis_streams.options import Names, StreamOptions
from holdfast.transports.redis_streams.sweeper import Sweeper
from holdfast.transports.rq_queues import RqQueues
from holdfast.transports.rq_sweep import RqSweep
from holdfast.wiring.redis import open_transport, streamed
from tests.nth_step.cutting import CuttingProxy
from tests.nth_step.fault import Fault, Moment, Strike
from tests.nth_step.grounds import assert_verified
from tests.nth_step.scenarios import jobs
from tests.nth_step.trying import for_each_step
from tests.servers.waiting import DEADLINE_SECONDS, wait_until


@dataclass(frozen=True)
class Post:
    """A database, and a Redis behind a proxy; `queue` is nobody else's."""

    plain: SqlStore
    proxy: CuttingProxy
    redis: Any
    options: StreamOptions  # past the proxy
    queue: str

    @property
    def bad_options(self) -> StreamOptions:
        return replace(self.options, url=self.bad_url)

    @property
    def bad_url(self) -> str:
        return "redis://{}:{}".format(*self.proxy.address)

    def sweep(self) -> None:
        with closing(Sweeper(lambda: self.plain, self.options)) as sweeper:
            for _ in sweeper.steps():
                pass

    def stream(self) -> list[str]:
        """The jobs that messages name, one by one."""
        found = self.redis.xrange(Names(self.options.prefix).stream(self.queue))
        return sorted(fields[b"job_id"].decode() for _id, fields in found)

    def pending(self) -> list[str]:
        return sorted(job.id for job in self.plain.jobs(queue=self.queue).items if job.state == "pending")


@pytest.fixture
def post(tmp_path: Path, migrated_file: Path, valkey_server: ValkeyEndpoint) -> Iterator[Callable[[], Any]]:
    """Makes one for each attempt."""
    address = urlsplit(valkey_server.url)
    direct = redis.Redis.from_url(valkey_server.url)

    @contextmanager
    def make() -> Iterator[Post]:
        name = f"nth-{uuid.uuid4().hex[:12]}"
        path = tmp_path / f"{name}.db"
        copy(migrated_file, path)
        options = StreamOptions(
            url=valkey_server.url,
            prefix=name,
            takeover_seconds=0.0,
            timeout_seconds=DEADLINE_SECONDS,
            sweep_timeout_seconds=DEADLINE_SECONDS,
        )
        with closing(SqlStore(open_sqlite(f"sqlite:///{path}"))) as plain:
            yield Post(plain, proxy, direct, options, name)
        for key in direct.scan_iter(f"*{name}*"):
            direct.delete(key)

    with CuttingProxy((address.hostname or "127.0.0.1", address.port or 6379), Fault()) as proxy:
        yield make
    direct.close()


def at_each_step(post: Callable[[], Any], act: Callable[[Post], Any], judge: Callable[[Post, Any], None]) -> int:
    def attempt(step: int, moment: Moment) -> bool:
        with post() as made:
            made.proxy.fault.arm(Strike(step, moment))
            answer = act(made)
            hit = made.proxy.fault.disarm()
            made.proxy.wait_until_quiet()
            judge(made, answer)
            assert_verified(made.plain)
        return bool(hit)

    return for_each_step(attempt)


@contextmanager
def streaming(post: Post, options: StreamOptions) -> Iterator[Store]:
    transport = open_transport(options)
    yield cast(Store, streamed(post.plain, transport))
    assert transport.publisher.flush(DEADLINE_SECONDS)
    transport.close()


def enqueue(post: Post) -> list[str]:
    with streaming(post, post.bad_options) as store:
        return [answer.id for answer in store.enqueue_many(jobs(queue=post.queue))]


def test_each_enqueued_job_has_one_message_in_the_end(post: Callable[[], Any]) -> None:
    def judge(post: Post, answer: list[str]) -> None:
        assert post.pending() == sorted(answer)
        assert set(post.stream()) <= set(answer)
        post.sweep()
        assert post.stream() == sorted(answer), "each of them once"

    at_each_step(post, enqueue, judge)


def test_a_sweep_that_was_cut_off_is_completed_by_the_next(post: Callable[[], Any]) -> None:
    def act(post: Post) -> list[str]:
        ids = [answer.id for answer in post.plain.enqueue_many(jobs(queue=post.queue))]
        with closing(Sweeper(lambda: post.plain, post.bad_options)) as sweeper:
            for _ in sweeper.steps():
                pass
        return ids

    def judge(post: Post, answer: list[str]) -> None:
        post.sweep()
        assert post.stream() == sorted(answer), "each of them once"

    at_each_step(post, act, judge)


def test_jobs_are_claimed_and_settled_once_whichever_message_got_lost(post: Callable[[], Any]) -> None:
    def act(post: Post) -> list[str]:
        post.plain.enqueue_many(jobs(queue=post.queue))
        post.sweep()
        with streaming(post, post.bad_options) as store:
            found = [*store.claim("ann", 3, [post.queue]), *store.claim("ann", 3, [post.queue])]
            store.settle(
                [
                    Report(job.job_id, job.attempt, job.lease_token, Succeeded(), "ann", message_id=job.message_id)
                    for job in found
                ]
            )
        return [job.job_id for job in found]

    def judge(post: Post, answer: list[str]) -> None:
        assert len(answer) == len(set(answer)) == 3
        assert {job.state for job in post.plain.jobs(queue=post.queue).items} == {"succeeded"}

        def quiet() -> bool:
            post.sweep()
            return post.stream() == []

        wait_until(quiet, what="no message is left")

    at_each_step(post, act, judge)


def test_each_job_has_one_message_in_rq_in_the_end(post: Callable[[], Any]) -> None:
    def sweep(post: Post, url: str) -> None:
        with closing(RqQueues(url, timeout=DEADLINE_SECONDS)) as queues:
            for _ in RqSweep(post.plain, queues).steps():
                pass

    def act(post: Post) -> list[str]:
        ids = [answer.id for answer in post.plain.enqueue_many(jobs(queue=post.queue))]
        sweep(post, post.bad_url)
        return ids

    def judge(post: Post, answer: list[str]) -> None:
        sweep(post, post.options.url)
        queue = Queue(post.queue, connection=post.redis)
        assert sorted(message.args[0] for message in queue.jobs) == sorted(answer), "each of them once"
        queue.delete(delete_jobs=True)

    at_each_step(post, act, judge)
