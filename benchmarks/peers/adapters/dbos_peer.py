"""dbos: a workflow without steps on a queue; BENCH_POLL is how often a worker looks (its default is a second)."""

import os
import signal
import threading

import peer_protocol as bench
from dbos import DBOS, DBOSClient

QUEUE = "q"
VERSION = "1"
POLL_SECONDS = float(os.environ.get("BENCH_POLL", "1"))
UNLIMITED = 1_000  # from here on a worker's concurrency is left open

DBOS(
    config={
        "name": "bench",
        "system_database_url": bench.PG,
        "application_version": VERSION,
        # A worker finds the workflows of its own name again when it starts, and those of no other.
        "executor_id": "worker-" + os.environ.get("BENCH_WORKER", "none"),
        "log_level": "CRITICAL",
        "console_log_level": "CRITICAL",
        "run_migrations": True,
    }
)


@DBOS.workflow(name="noop")
def noop(number):
    bench.work(number)


class Peer:
    def setup(self):
        DBOS.launch()
        DBOS.register_queue(QUEUE, polling_interval_sec=POLL_SECONDS)
        DBOS.destroy()

    def open(self):
        self.client = DBOSClient(system_database_url=bench.PG)
        self.options = {"queue_name": QUEUE, "workflow_name": "noop", "app_version": VERSION}

    def close(self):
        self.client.destroy()

    def enqueue(self, number):
        self.client.enqueue(self.options, number)

    def bulk(self, numbers):
        # It has no call for many: many calls in one transaction of the caller's.
        with self.client._sys_db.engine.begin() as connection:
            for number in numbers:
                self.client.enqueue_in_transaction(connection, self.options, number)

    def worker(self):
        stopped = threading.Event()
        for number in (signal.SIGTERM, signal.SIGINT):
            signal.signal(number, lambda *_: stopped.set())
        DBOS.launch()
        DBOS.register_queue(
            QUEUE,
            polling_interval_sec=POLL_SECONDS,
            worker_concurrency=bench.CONCURRENCY if bench.CONCURRENCY < UNLIMITED else None,
            on_conflict="always_update",
        )
        stopped.wait()
        DBOS.destroy()


if __name__ == "__main__":
    bench.serve(Peer())
