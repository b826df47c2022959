"""celery on Redis, results ignored. BENCH_POOL is its pool."""

import os

import peer_protocol as bench
from celery import Celery

app = Celery("celery_peer", broker=bench.REDIS)
app.conf.update(task_ignore_result=True, worker_hijack_root_logger=False, broker_connection_retry_on_startup=True)


@app.task(name="noop")
def noop(number):
    bench.work(number)


class Peer:
    def setup(self):
        """Nothing to make."""

    def enqueue(self, number):
        noop.delay(number)

    def worker(self):
        options = ["--without-gossip", "--without-mingle", "-l", "ERROR", "-n", f"worker{os.getpid()}@localhost"]
        app.worker_main(["worker", "-P", os.environ["BENCH_POOL"], "-c", str(bench.CONCURRENCY), *options])


if __name__ == "__main__":
    import celery_peer  # tasks are known by the name of their module

    bench.serve(celery_peer.Peer())
