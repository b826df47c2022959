"""awa: its Rust core, coroutines on uvloop."""

import asyncio
import signal
from dataclasses import dataclass

import peer_protocol as bench
import uvloop
from awa import AsyncClient

QUEUE = "bench"


@dataclass
class Noop:
    number: int


class Peer:
    async def setup(self):
        client = AsyncClient(bench.PG)
        await client.migrate()
        # What the first worker of a fresh installation does when it starts. Without it, jobs that are enqueued before
        # any worker ever ran go to older tables, and the database stays with those.
        transaction = await client.transaction()
        await transaction.execute("select awa.storage_auto_finalize_if_fresh('awa')")
        await transaction.commit()
        await client.close()

    async def open(self):
        self.client = AsyncClient(bench.PG)

    async def close(self):
        await self.client.close()

    async def enqueue(self, number):
        await self.client.insert(Noop(number), queue=QUEUE)

    async def bulk(self, numbers):
        await self.client.enqueue_many_copy([Noop(number) for number in numbers], queue=QUEUE)

    async def worker(self):
        stopped = asyncio.Event()
        for number in (signal.SIGTERM, signal.SIGINT):
            asyncio.get_running_loop().add_signal_handler(number, stopped.set)
        client = AsyncClient(bench.PG)

        @client.task(Noop, queue=QUEUE)
        async def noop(job):
            await bench.work_async(job.args.number)

        await client.start([(QUEUE, bench.CONCURRENCY)])
        await stopped.wait()
        await client.shutdown()
        await client.close()


if __name__ == "__main__":
    import awa_peer  # jobs are known by the name of their class's module

    bench.serve_async(awa_peer.Peer(), uvloop.run)
