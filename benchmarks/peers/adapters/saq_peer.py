"""saq, on Postgres or on Redis: coroutines on uvloop."""

import logging
import os

import peer_protocol as bench
import uvloop
from saq import Queue, Worker

logging.disable(logging.CRITICAL)
URL = bench.PG if os.environ["BENCH_BACKEND"] == "postgres" else bench.REDIS


async def noop(_context, *, number):
    await bench.work_async(number)


class Peer:
    async def setup(self):
        await self.open()
        await self.close()

    async def open(self):
        self.queue = Queue.from_url(URL)
        await self.queue.connect()

    async def close(self):
        await self.queue.disconnect()

    async def enqueue(self, number):
        await self.queue.enqueue("noop", number=number)

    async def worker(self):
        await self.open()
        await Worker(self.queue, functions=[("noop", noop)], concurrency=bench.CONCURRENCY).start()


if __name__ == "__main__":
    bench.serve_async(Peer(), uvloop.run)
