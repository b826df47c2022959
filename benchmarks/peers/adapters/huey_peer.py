"""huey, on Redis or on SQLite: threads."""

import logging
import os

import peer_protocol as bench
from huey import RedisHuey, SqliteHuey

logging.disable(logging.CRITICAL)
if os.environ["BENCH_BACKEND"] == "redis":
    huey = RedisHuey("bench", url=bench.REDIS)
else:
    huey = SqliteHuey("bench", filename=os.path.join(bench.FOLDER, "huey.db"))  # noqa: PTH118


@huey.task()
def noop(number):
    bench.work(number)


class Peer:
    def setup(self):
        huey.flush()

    def enqueue(self, number):
        noop(number)

    def worker(self):
        consumer = huey.create_consumer(
            workers=bench.CONCURRENCY, worker_type="thread", periodic=False, check_worker_health=False
        )
        consumer.run()


if __name__ == "__main__":
    import huey_peer  # tasks are known by the name of their module

    bench.serve(huey_peer.Peer())
