"""A switchover of Redis behind one address: open connections lead to what is now a replica."""

import uuid
from collections.abc import Iterator

import pytest

from holdfast.domain.job import Claimed, NewJob
from holdfast.throwaway.valkey import ValkeyServer
from holdfast.transports.rq_queues import RqQueues
from holdfast.transports.rq_sweep import RqSweep
from tests.chaos.conftest import sqlite_url
from tests.chaos.proxy import ForgetfulProxy
from tests.servers.waiting import wait_until
from tests.transports.streaming import Fleet

__all__ = ["sqlite_url"]


class Address:
    """One address, and the two servers that it can lead to."""

    def __init__(self, primary: ValkeyServer, other: ValkeyServer, proxy: ForgetfulProxy) -> None:
        self._primary = primary
        self._other = other
        self._proxy = proxy
        self.url = proxy.url

    def switch_over(self, operator: Fleet) -> None:
        """The former primary answers on, as a replica; only new connections reach the new primary."""
        answered = operator.redis.execute_command("REPLICAOF", "127.0.0.1", self._other.port)
        assert answered in (b"OK", True)
        self._proxy.lead_to(self._other.url)


@pytest.fixture
def address() -> Iterator[Address]:
    with ValkeyServer() as primary, ValkeyServer() as other, ForgetfulProxy(primary.url) as proxy:
        yield Address(primary, other, proxy)


def claim_by_message(worker: Fleet, producer: Fleet) -> Claimed:
    """A job that a message led to. Each try brings a new job: messages of the others are lost."""
    found: list[Claimed] = []

    def claims() -> bool:
        producer.enqueue(1)
        found.extend(job for job in worker.claim() if job.message_id is not None)
        return bool(found)

    wait_until(claims, what="a message leads to a job")
    return found[0]


def test_messages_flow_again_after_a_switchover(address: Address, sqlite_url: str) -> None:
    prefix = uuid.uuid4().hex
    with Fleet(sqlite_url, address.url, prefix) as producer, Fleet(sqlite_url, address.url, prefix) as worker:
        worker.finish([claim_by_message(worker, producer)])
        address.switch_over(producer)
        worker.finish([claim_by_message(worker, producer)])


def test_rq_gets_messages_again_after_a_switchover(address: Address, sqlite_url: str) -> None:
    queues = RqQueues(address.url, timeout=60.0)
    with Fleet(sqlite_url, address.url, uuid.uuid4().hex) as fleet:
        sweep = RqSweep(fleet.plain, queues)
        fleet.plain.enqueue(NewJob(task="add"))
        assert sum(sweep.steps()) == 1
        address.switch_over(fleet)
        wait_until(lambda: sum(sweep.steps()) == 1, what="the sweep offers the job to the new primary")
    queues.close()
