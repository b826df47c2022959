"""Ours, as shipped: `holdfast worker module:app` with its default runners, jobs through the app's public interface.

`record` and `replay` are for the floor under a single enqueue: what one enqueue sends to Postgres is noted, and then
sent again, into a fresh database, by psycopg alone.
"""

import os
import pickle
import subprocess
import sys
import time
from pathlib import Path

import peer_protocol as bench

from holdfast import App

app = App()
NOTED = Path(bench.FOLDER) / "statements.pickle"

if os.environ.get("BENCH_ASYNC") == "1":

    @app.task(name="noop")
    async def noop(number: int) -> None:
        await bench.work_async(number)

else:

    @app.task(name="noop")
    def noop(number: int) -> None:
        bench.work(number)


class Peer:
    def setup(self):
        subprocess.run([bench.program("holdfast"), "db", "upgrade"], check=True, stdout=subprocess.DEVNULL)

    def open(self):
        _ = app.store  # connected before the clock starts

    def close(self):
        app.close()

    def enqueue(self, number):
        noop.enqueue(number)

    def bulk(self, numbers):
        noop.enqueue_many([(number,) for number in numbers])

    def worker(self):
        bench.become("holdfast", "worker", "holdfast_peer:app")


def record(count):
    """What `enqueue` executes, call by call."""
    import psycopg

    noted = []
    execute = psycopg.Cursor.execute

    def noting(cursor, query, params=None, **options):
        if "INSERT INTO holdfast_jobs" in str(query):
            noted.append((query, params))
        return execute(cursor, query, params, **options)

    _ = app.store
    psycopg.Cursor.execute = noting
    for number in range(count):
        noop.enqueue(number)
    if len(noted) != count:
        raise SystemExit(f"{count} enqueues sent {len(noted)} inserts through psycopg's cursor")
    NOTED.write_bytes(pickle.dumps(noted))


def replay():
    import psycopg

    noted = pickle.loads(NOTED.read_bytes())
    with psycopg.connect(bench.PG, autocommit=True) as connection, connection.cursor() as cursor:
        started = time.perf_counter()
        for query, parameters in noted:
            cursor.execute(query, parameters)
            if cursor.description:
                cursor.fetchall()
        bench.answer(count=len(noted), seconds=time.perf_counter() - started)


if __name__ == "__main__":
    if sys.argv[1] == "record":
        record(int(sys.argv[2]))
    elif sys.argv[1] == "replay":
        replay()
    else:
        bench.serve(Peer())
