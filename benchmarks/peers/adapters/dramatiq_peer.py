"""dramatiq on Redis: its own command, one process of threads."""

import dramatiq
import peer_protocol as bench
from dramatiq.brokers.redis import RedisBroker

dramatiq.set_broker(RedisBroker(url=bench.REDIS))


@dramatiq.actor
def noop(number):
    bench.work(number)


class Peer:
    def setup(self):
        """Nothing to make."""

    def enqueue(self, number):
        noop.send(number)

    def worker(self):
        bench.become("dramatiq", "dramatiq_peer", "-p", "1", "-t", str(bench.CONCURRENCY), "--skip-logging")


if __name__ == "__main__":
    bench.serve(Peer())
