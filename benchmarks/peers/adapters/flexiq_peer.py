"""flexiq on SQLite: threads. BENCH_BATCH and BENCH_POLL (ms) tune its scheduler; its defaults are 1 and 50."""

import logging
import os

import peer_protocol as bench
from flexiq import Queue

logging.disable(logging.CRITICAL)
options = {"db_path": os.path.join(bench.FOLDER, "flexiq.db"), "workers": bench.CONCURRENCY}  # noqa: PTH118
if "BENCH_BATCH" in os.environ:
    options["scheduler_batch_size"] = int(os.environ["BENCH_BATCH"])
if "BENCH_POLL" in os.environ:
    options["scheduler_poll_interval_ms"] = int(os.environ["BENCH_POLL"])
queue = Queue(**options)


@queue.task(name="noop")
def noop(number):
    bench.work(number)


class Peer:
    def setup(self):
        """Opening the queue made its tables."""

    def enqueue(self, number):
        noop.delay(number)

    def bulk(self, numbers):
        queue.enqueue_many("noop", [(number,) for number in numbers])

    def worker(self):
        queue.run_worker()


if __name__ == "__main__":
    bench.serve(Peer())
