"""oban-py: coroutines, uvloop."""

import asyncio
import signal

import peer_protocol as bench
import uvloop
from oban import Oban, worker
from oban.schema import install


@worker(queue="default")
class Noop:
    async def process(self, job):
        await bench.work_async(job.args["number"])


class Peer:
    async def setup(self):
        pool = await Oban.create_pool(bench.PG)
        await install(pool)
        await pool.close()

    async def open(self, **options):
        self.pool = await Oban.create_pool(bench.PG)
        self.oban = Oban(pool=self.pool, **options)
        await self.oban.start()

    async def close(self):
        await self.oban.stop()
        await self.pool.close()

    async def enqueue(self, number):
        await self.oban.enqueue(Noop.new({"number": number}))

    async def bulk(self, numbers):
        await self.oban.enqueue_many([Noop.new({"number": number}) for number in numbers])

    async def worker(self):
        stopped = asyncio.Event()
        for number in (signal.SIGTERM, signal.SIGINT):
            asyncio.get_running_loop().add_signal_handler(number, stopped.set)
        await self.open(queues={"default": bench.CONCURRENCY})
        await stopped.wait()
        await self.close()


if __name__ == "__main__":
    import oban_peer  # jobs name their worker by module and class

    bench.serve_async(oban_peer.Peer(), uvloop.run)
