"""procrastinate: psycopg, coroutines."""

import logging

import peer_protocol as bench
import procrastinate

logging.disable(logging.CRITICAL)
app = procrastinate.App(connector=procrastinate.PsycopgConnector(conninfo=bench.PG, min_size=1, max_size=10))


@app.task(name="noop", queue="default")
async def noop(number):
    await bench.work_async(number)


class Peer:
    async def setup(self):
        async with app.open_async():
            await app.schema_manager.apply_schema_async()

    async def open(self):
        await app.open_async()

    async def close(self):
        await app.close_async()

    async def enqueue(self, number):
        await noop.defer_async(number=number)

    async def bulk(self, numbers):
        await noop.batch_defer_async(*[{"number": number} for number in numbers])

    async def worker(self):
        async with app.open_async():
            await app.run_worker_async(concurrency=bench.CONCURRENCY, wait=True)


if __name__ == "__main__":
    bench.serve_async(Peer())
