"""Messages are hints: put into RQ after the commit if that can be done quickly, and put in again by the sweep."""

from __future__ import annotations

import logging
import socket
import uuid
from collections.abc import Iterator
from pathlib import Path
from typing import cast

import pytest
from redis import Redis
from rq import Queue
from rq.serializers import JSONSerializer
from sqlalchemy import create_engine

from holdfast import App
from holdfast.domain.job import NewJob
from holdfast.stores.sql_store import SqlStore
from holdfast.throwaway.valkey import ValkeyEndpoint
from holdfast.transports.rq_queues import QUEUED_SECONDS, RqQueues
from holdfast.transports.rq_refusals import REFUSED_SECONDS, refused_key, remember_refusal
from holdfast.transports.rq_sweep import RqSweep
from holdfast.wiring.sql import open_store
from tests.servers.waiting import DEADLINE_SECONDS


@pytest.fixture(scope="module")
def redis(valkey_server: ValkeyEndpoint) -> Iterator[Redis]:
    with Redis.from_url(valkey_server.url) as client:
        yield client


@pytest.fixture
def queue(redis: Redis) -> Iterator[str]:
    name = f"rq-{uuid.uuid4().hex[:12]}"
    yield name
    Queue(name, connection=redis).delete(delete_jobs=True)


@pytest.fixture
def url(tmp_path: Path) -> str:
    return f"sqlite:///{tmp_path / 'jobs.db'}"


@pytest.fixture
def store(url: str) -> Iterator[SqlStore]:
    store = open_store(url)
    yield store
    store.close()


@pytest.fixture
def queues(valkey_server: ValkeyEndpoint) -> Iterator[RqQueues]:
    queues = RqQueues(valkey_server.url, timeout=DEADLINE_SECONDS, window=3)
    yield queues
    queues.close()


def named(queue: Queue) -> list[str]:
    return [message.args[0] for message in queue.jobs]


def sweep(store: SqlStore, queues: RqQueues) -> int:
    return sum(RqSweep(store, queues).steps())


@pytest.mark.usefixtures("patient_offers")
def test_only_what_can_be_run_now_is_told(
    url: str, queue: str, redis: Redis, valkey_server: ValkeyEndpoint, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("HOLDFAST_RQ_URL", valkey_server.url)
    monkeypatch.setenv("HOLDFAST_RQ_SERIALIZER", "json")
    app = App(url)

    @app.task(queue=queue)
    def work(number: int) -> int:
        return number

    now = work.using(unique=True).enqueue(1)
    work.using(unique=True).enqueue(1)
    work.using(delay="1h").enqueue(2)
    with app.borrowed_store("sqlite://"):
        work.enqueue(3)
    app.close()
    messages = Queue(queue, connection=redis, serializer=JSONSerializer)
    assert named(messages) == [now.id]
    [message] = messages.jobs
    assert message.func_name == "holdfast.rq.execute_run"
    assert (message.timeout, message.result_ttl, message.retries_left) == (-1, 0, None)
    messages.delete(delete_jobs=True)


def test_message_of_an_rq_worker_that_died_before_the_claim_expires(
    store: SqlStore, queues: RqQueues, queue: str, redis: Redis
) -> None:
    store.enqueue(NewJob(task="work", queue=queue))
    assert sweep(store, queues) == 1
    [message] = Queue(queue, connection=redis).jobs
    redis.lpop(f"rq:queue:{queue}")
    redis.persist(message.key)  # as RQ does when the function begins
    assert sweep(store, queues) == 0
    assert 0 < redis.ttl(message.key) <= QUEUED_SECONDS
    redis.delete(message.key)
    assert sweep(store, queues) == 1


def test_an_enqueue_in_the_users_own_transaction_is_left_to_the_sweep(
    postgres_url: str, queue: str, redis: Redis, valkey_server: ValkeyEndpoint, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("HOLDFAST_RQ_URL", valkey_server.url)
    app = App(postgres_url)

    @app.task(queue=queue)
    def work() -> None: ...

    messages, queues = Queue(queue, connection=redis), RqQueues(valkey_server.url, timeout=DEADLINE_SECONDS)
    engine = create_engine(postgres_url)
    with engine.begin() as connection:
        handle = work.using(connection=connection).enqueue()
        assert sweep(cast(SqlStore, app.store), queues) == 0
    assert messages.count == 0
    assert sweep(cast(SqlStore, app.store), queues) == 1
    assert named(messages) == [handle.id]
    engine.dispose()
    queues.close()
    app.close()


class StandingClock:
    @staticmethod
    def monotonic() -> float:
        return 0.0


def test_a_redis_that_does_not_answer_costs_one_caller_a_moment_and_no_job(
    url: str, store: SqlStore, queue: str, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    monkeypatch.setattr("holdfast.transports.bounded.time", StandingClock)  # the pause after a failure never ends
    with socket.create_server(("127.0.0.1", 0)) as silent:
        monkeypatch.setenv("HOLDFAST_RQ_URL", f"redis://:hidden@127.0.0.1:{silent.getsockname()[1]}/0")
        app = App(url)

        @app.task(queue=queue)
        def work() -> None: ...

        with caplog.at_level(logging.WARNING, "holdfast"):
            jobs = [work.enqueue() for _ in range(3)]
        app.close()
        silent.accept()[0].close()
        silent.setblocking(False)
        with pytest.raises(BlockingIOError):  # the second and third did not even try
            silent.accept()
    assert [store.job(job.id).queue for job in jobs] == [queue] * 3
    assert len(caplog.records) == 1
    assert "hidden" not in caplog.text


def test_the_sweep_offers_what_has_no_message_up_to_the_window(
    store: SqlStore, queue: str, redis: Redis, queues: RqQueues
) -> None:
    jobs = [answer.id for answer in store.enqueue_many([NewJob(task="t", queue=queue) for _ in range(5)])]
    messages = Queue(queue, connection=redis)
    assert sweep(store, queues) == 3
    assert sweep(store, queues) == 0, "they all have one"
    assert named(messages) == jobs[:3]
    messages.pop_job_id()
    claimed = store.claim_job("elsewhere", jobs[1])
    assert claimed is not None
    assert sweep(store, queues) == 1, "the one that was taken still has its message, and the next one got one"
    assert named(messages) == [jobs[1], jobs[2], jobs[3]]


def test_a_job_that_is_due_again_is_another_offer(store: SqlStore, queue: str, redis: Redis, queues: RqQueues) -> None:
    job_id = store.enqueue(NewJob(task="t", queue=queue)).id
    assert sweep(store, queues) == 1
    store.cancel([job_id])
    assert sweep(store, queues) == 0
    store.requeue([job_id])
    assert sweep(store, queues) == 1
    assert named(Queue(queue, connection=redis)) == [job_id, job_id]


def test_what_was_refused_for_want_of_its_task_is_not_offered_again_and_hides_nothing(
    store: SqlStore, queue: str, redis: Redis, queues: RqQueues
) -> None:
    unknown = store.enqueue_many([NewJob(task="unknown", queue=queue) for _ in range(10)])
    known = store.enqueue(NewJob(task="t", queue=queue)).id
    for answer in unknown:
        remember_refusal(redis, answer.id, 1)
    assert sweep(store, queues) == 1, "behind more of them than fit into the window"
    messages = Queue(queue, connection=redis)
    assert named(messages) == [known]
    assert all(0 < redis.ttl(refused_key(answer.id, 1)) <= REFUSED_SECONDS for answer in unknown)
    messages.delete(delete_jobs=True)
    redis.delete(*(refused_key(answer.id, 1) for answer in unknown))
    assert sweep(store, queues) == 3, "as after the loss of all of Redis"


def test_a_queue_that_redis_refuses_holds_up_no_other(
    store: SqlStore, queue: str, redis: Redis, queues: RqQueues, caplog: pytest.LogCaptureFixture
) -> None:
    wrong = f"a-{queue}"
    store.enqueue_many([NewJob(task="t", queue=name) for name in (wrong, queue)])
    redis.set(f"rq:queue:{wrong}", "x", ex=600)
    sweeping = RqSweep(store, queues)
    assert [sum(sweeping.steps()), sum(sweeping.steps())] == [1, 0]
    assert [wrong in record.getMessage() for record in caplog.records] == [True], "told once"
    redis.delete(f"rq:queue:{wrong}")


def test_a_sweep_without_redis_is_over_at_once(store: SqlStore, queue: str, caplog: pytest.LogCaptureFixture) -> None:
    store.enqueue(NewJob(task="t", queue=queue))
    with socket.socket() as nobody:
        nobody.bind(("127.0.0.1", 0))
        sweeping = RqSweep(store, RqQueues(f"redis://127.0.0.1:{nobody.getsockname()[1]}/0", timeout=1.0))
        assert (list(sweeping.steps()), list(sweeping.steps())) == ([], [])
    assert len(caplog.records) == 1, "told once"
