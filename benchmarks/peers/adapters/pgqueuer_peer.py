"""pgqueuer: its documented asyncpg driver, uvloop as its own command line uses; concurrency is the batch size."""

import asyncio
import logging
import signal
from datetime import timedelta

import asyncpg
import peer_protocol as bench
import uvloop
from pgqueuer import PgQueuer
from pgqueuer.db import AsyncpgDriver
from pgqueuer.queries import Queries

logging.disable(logging.CRITICAL)


class Peer:
    async def setup(self):
        await self.open()
        await self.queries.install()
        await self.close()

    async def open(self):
        self.connection = await asyncpg.connect(bench.PG)
        self.queries = Queries(AsyncpgDriver(self.connection))

    async def close(self):
        await self.connection.close()

    async def enqueue(self, number):
        await self.queries.enqueue("noop", b"%d" % number)

    async def bulk(self, numbers):
        count = len(numbers)
        await self.queries.enqueue(["noop"] * count, [b"%d" % number for number in numbers], [0] * count)

    async def worker(self):
        queuer = PgQueuer(AsyncpgDriver(await asyncpg.connect(bench.PG)))

        @queuer.entrypoint("noop")
        async def noop(job):
            await bench.work_async(job.payload)

        for number in (signal.SIGTERM, signal.SIGINT):
            asyncio.get_running_loop().add_signal_handler(number, queuer.shutdown.set)
        await queuer.run(batch_size=bench.CONCURRENCY, dequeue_timeout=timedelta(seconds=30))


if __name__ == "__main__":
    bench.serve_async(Peer(), uvloop.run)
