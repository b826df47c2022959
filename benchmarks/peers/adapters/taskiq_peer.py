"""taskiq on a Redis stream (the broker that acknowledges): its own command, one process."""

import peer_protocol as bench
import uvloop
from taskiq_redis import RedisStreamBroker

broker = RedisStreamBroker(bench.REDIS)


@broker.task(task_name="noop")
async def noop(number: int):
    await bench.work_async(number)


class Peer:
    async def setup(self):
        await self.open()
        await self.close()

    async def open(self):
        await broker.startup()

    async def close(self):
        await broker.shutdown()

    async def enqueue(self, number):
        await noop.kiq(number)

    def worker(self):
        at_once = str(bench.CONCURRENCY)
        bench.become(
            "taskiq", "worker", "taskiq_peer:broker", "-w", "1", "--max-async-tasks", at_once, "--log-level", "ERROR"
        )


if __name__ == "__main__":
    bench.serve_async(Peer(), uvloop.run)
