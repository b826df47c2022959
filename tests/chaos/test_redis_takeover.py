"""A worker that is killed with messages in its hands: they are taken over, and those of a live one are not."""

import os
import signal
import subprocess
import sys
import uuid
from collections.abc import Iterator

import pytest

from holdfast.throwaway.valkey import ValkeyEndpoint
from holdfast.transports.redis_streams.options import GROUP
from tests.chaos.crew import REPOSITORY
from tests.servers.waiting import wait_until
from tests.transports.streaming import Fleet

# Reads four messages, claims the jobs of two of them, says so, and waits for its end.
READER = """
import sys, time
from tests.transports.streaming import Fleet
url, redis_url, prefix = sys.argv[1:]
fleet = Fleet(url, redis_url, prefix)
fleet.claim("doomed", 2)
fleet.transport.streams.take("doomed", None, 2)
print("ready", flush=True)
time.sleep(600)
"""


@pytest.fixture
def fleet(store_url: str, valkey_server: ValkeyEndpoint) -> Iterator[Fleet]:
    with Fleet(store_url, valkey_server.url, uuid.uuid4().hex) as fleet:
        yield fleet


def test_the_messages_of_a_killed_process_are_taken_over(fleet: Fleet) -> None:
    fleet.enqueue(4, lease_seconds=2.0)
    command = [sys.executable, "-c", READER, fleet.url, fleet.options.url, fleet.options.prefix]
    with subprocess.Popen(command, cwd=REPOSITORY, stdout=subprocess.PIPE, text=True) as reader:
        assert reader.stdout is not None
        assert reader.stdout.readline() == "ready\n"
        print(f"{fleet.server()}, reader {reader.pid}")
        os.kill(reader.pid, signal.SIGKILL)
    assert fleet.pending() == 4
    with fleet.working(threads=1):
        fleet.wait_done(2)  # it had no lease on these
        wait_until(lambda: _reap(fleet) == 4, what="those that it had claimed are done when their leases are over")
    fleet.assert_quiet()
    fleet.assert_each_once(4)
    fleet.transport.streams.tidy("default", 0.0)
    assert fleet.transport.streams.queues() == set(), "its consumer is gone, and the others, and the stream"


def _reap(fleet: Fleet) -> int:
    fleet.store.reap("reaper", period=0.2, lease_seconds=2.0, heartbeat_seconds=0.5)
    return fleet.done()


def test_a_message_stays_with_the_worker_that_runs_its_job(fleet: Fleet) -> None:
    fleet.enqueue(1)
    [job] = fleet.claim("ann")
    wait_until(lambda: _held_for(fleet) > fleet.options.takeover_seconds, what="it is held for long")
    fleet.sweep()
    assert fleet.pending() == 1
    fleet.finish([job])
    assert (fleet.length(), fleet.pending()) == (0, 0)


def _held_for(fleet: Fleet) -> float:
    [held] = fleet.redis.xpending_range(fleet.names.stream("default"), GROUP, "-", "+", 1)
    return float(held["time_since_delivered"]) / 1000
