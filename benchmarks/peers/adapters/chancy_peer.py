"""chancy: coroutines in its asyncio executor; with BENCH_EAGER it polls again at once while there is work."""

import logging
import os

import peer_protocol as bench
from chancy import Chancy, Queue, Worker, job

log = logging.getLogger("quiet")
log.setLevel(logging.CRITICAL)


@job(queue="default")
async def noop(*, number: int):
    await bench.work_async(number)


def open_chancy():
    return Chancy(bench.PG, log=log)


def queue():
    return Queue(
        "default",
        concurrency=bench.CONCURRENCY,
        executor="chancy.executors.asyncex.AsyncExecutor",
        eager_polling=os.environ.get("BENCH_EAGER") == "1",
    )


class Peer:
    async def setup(self):
        async with open_chancy() as chancy:
            await chancy.migrate()
            await chancy.declare(queue(), upsert=True)

    async def open(self):
        self.chancy = open_chancy()
        await self.chancy.__aenter__()

    async def close(self):
        await self.chancy.__aexit__(None, None, None)

    async def enqueue(self, number):
        await self.chancy.push(noop.job.with_kwargs(number=number))

    async def bulk(self, numbers):
        jobs = [noop.job.with_kwargs(number=number) for number in numbers]
        async for _ in self.chancy.push_many(jobs, batch_size=len(jobs)):
            pass

    async def worker(self):
        async with open_chancy() as chancy:
            await chancy.declare(queue(), upsert=True)
            async with Worker(chancy) as worker:
                await worker.wait_for_shutdown()


if __name__ == "__main__":
    import chancy_peer  # the job is looked up by the name of its module

    bench.serve_async(chancy_peer.Peer())
