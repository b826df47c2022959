"""`python -m benchmarks.curves.idle_clients WAY COUNT DATABASE_URL REDIS_URL`: so many idle workers, simulated.

polling    each asks the database at the shipped interval, over a small pool of connections
streams    each asks as a worker does that takes jobs through Redis: the stream at that interval, and every few seconds
           the database; and each has a connection that hears of new messages
blocked    each waits in a blocking XREADGROUP, as a consumer of one stream could: the least there is

The intervals are those of a worker that has found nothing for a while. It says once a second how many questions it has
asked and how long they took, and ends with its stdin."""

from __future__ import annotations

import asyncio
import heapq
import random
import sys
import threading
import time
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from contextlib import suppress
from typing import Any

from holdfast.settings import Settings
from holdfast.wiring.redis import LOOK_SECONDS, StreamOptions, open_transport, streamed
from holdfast.wiring.sql import open_store

QUEUES, TASKS = ("default",), ("noop",)
THREADS = 5
SLOTS = 2
JITTER = (0.75, 1.0)
POLL_SECONDS = Settings(database_url="sqlite://").poll_interval


class Pollers:
    """One heap of who asks when; a few threads that ask."""

    def __init__(self, asks: list[Callable[[], object]]) -> None:
        self._asks = asks
        self._due = [(time.monotonic() + random.uniform(0, POLL_SECONDS), number) for number in range(len(asks))]
        heapq.heapify(self._due)
        self._lock = threading.Lock()
        self.asked = 0
        self.took = 0.0

    def work(self) -> None:
        while True:
            with self._lock:
                at, number = heapq.heappop(self._due)
            time.sleep(max(0.0, at - time.monotonic()))
            began = time.monotonic()
            self._asks[number]()
            ended = time.monotonic()
            with self._lock:
                self.asked += 1
                self.took += ended - began
                # As `worker/pickup.py` waits when it has backed off as far as it goes.
                heapq.heappush(self._due, (ended + POLL_SECONDS * random.uniform(*JITTER), number))


def poll(asks: list[Callable[[], object]]) -> None:
    pollers = Pollers(asks)
    threads = ThreadPoolExecutor(THREADS)
    for _ in range(THREADS):
        threads.submit(pollers.work)
    while True:
        time.sleep(1.0)
        print(pollers.asked, pollers.took, flush=True)


def polling(count: int, database: str, _redis: str) -> None:
    store = open_store(database, pool_size=THREADS)
    poll([lambda name=f"idle-{n}": store.claim(name, SLOTS, QUEUES, TASKS) for n in range(count)])  # type: ignore[misc]


def streams(count: int, database: str, redis: str) -> None:
    store, transport = open_store(database, pool_size=THREADS), open_transport(StreamOptions(url=redis))
    doors = [streamed(store, transport, look_seconds=LOOK_SECONDS) for _ in range(count)]
    threading.Thread(target=lambda: asyncio.run(_subscribed(count, redis)), daemon=True).start()
    poll([
        lambda door=door, name=f"idle-{n}": door.claim(name, SLOTS, QUEUES, TASKS)  # type: ignore[misc]
        for n, door in enumerate(doors)
    ])  # fmt: skip


async def _subscribed(count: int, url: str) -> None:
    import redis.asyncio

    client: Any = redis.asyncio.Redis.from_url(url, max_connections=count + 10)
    ears = [client.pubsub() for _ in range(count)]
    for ear in ears:
        await ear.subscribe("holdfast:wake")
    await asyncio.Event().wait()


def blocked(count: int, _database: str, url: str) -> None:
    async def all_of_them() -> None:
        import redis.asyncio

        client: Any = redis.asyncio.Redis.from_url(url, max_connections=count + 10, socket_timeout=None)
        with suppress(redis.ResponseError):  # another process made it
            await client.xgroup_create("bench:stream", "bench", mkstream=True)
        asked = 0

        async def wait(name: str) -> None:
            nonlocal asked
            while True:
                await client.xreadgroup("bench", name, {"bench:stream": ">"}, count=1, block=30_000)
                asked += 1

        waits = [asyncio.create_task(wait(f"idle-{random.random()}")) for _ in range(count)]
        while all(not task.done() for task in waits):
            await asyncio.sleep(1.0)
            print(asked, 0.0, flush=True)
        await asyncio.gather(*waits)

    asyncio.run(all_of_them())


def main(way: str, count: int, database: str, redis: str) -> None:
    ways = {"polling": polling, "streams": streams, "blocked": blocked}
    threading.Thread(target=ways[way], args=(count, database, redis), daemon=True).start()
    sys.stdin.read()


if __name__ == "__main__":
    main(sys.argv[1], int(sys.argv[2]), sys.argv[3], sys.argv[4])
