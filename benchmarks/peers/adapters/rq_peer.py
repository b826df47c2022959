"""rq: SimpleWorker runs jobs in its own process; with BENCH_FORK the default worker forks for each."""

import os

import peer_protocol as bench
import redis
from rq import Queue, SimpleWorker, Worker


def noop(number):
    bench.work(number)


class Peer:
    def setup(self):
        """Nothing to make."""

    def open(self):
        self.queue = Queue(connection=redis.Redis.from_url(bench.REDIS))

    def enqueue(self, number):
        self.queue.enqueue(noop, number)

    def bulk(self, numbers):
        self.queue.enqueue_many([Queue.prepare_data(noop, (number,)) for number in numbers])

    def worker(self):
        self.open()
        kind = Worker if os.environ.get("BENCH_FORK") == "1" else SimpleWorker
        kind([self.queue], connection=self.queue.connection).work(logging_level="ERROR")


if __name__ == "__main__":
    import rq_peer  # functions are known by the name of their module

    bench.serve(rq_peer.Peer())
