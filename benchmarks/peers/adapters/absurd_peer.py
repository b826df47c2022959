"""absurd: the schema comes with its command line's wheel (absurdctl); the SDK's asyncio worker."""

import asyncio
import signal

import peer_protocol as bench
import psycopg
from absurd_sdk import Absurd, AsyncAbsurd
from absurdctl import BUNDLED_SCHEMA_SQL

QUEUE = "q"


class Peer:
    def setup(self):
        with psycopg.connect(bench.PG, autocommit=True) as connection:
            connection.execute(BUNDLED_SCHEMA_SQL)
        absurd = Absurd(bench.PG, queue_name=QUEUE)
        absurd.create_queue(QUEUE)
        absurd.close()

    def open(self):
        self.absurd = Absurd(bench.PG, queue_name=QUEUE)
        self.absurd.register_task("noop")(lambda _parameters, _context: None)

    def close(self):
        self.absurd.close()

    def enqueue(self, number):
        self.absurd.spawn("noop", {"number": number})

    def worker(self):
        asyncio.run(work())


async def work():
    absurd = AsyncAbsurd(bench.PG, queue_name=QUEUE)

    @absurd.register_task("noop")
    async def noop(parameters, _context):
        await bench.work_async(parameters["number"])

    for number in (signal.SIGTERM, signal.SIGINT):
        asyncio.get_running_loop().add_signal_handler(number, absurd.stop_worker)
    await absurd.start_worker(concurrency=bench.CONCURRENCY)
    await absurd.close()


if __name__ == "__main__":
    bench.serve(Peer())
