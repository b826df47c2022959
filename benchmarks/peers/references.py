"""What our figures are held against besides the peers: our own ledger without workers, our insert without our code."""

from __future__ import annotations

import time
from contextlib import closing
from typing import Any

from benchmarks import ledger
from benchmarks.databases import settle_down
from benchmarks.peers.bench import Bench
from benchmarks.peers.servers import Servers, wait_for_calm
from holdfast.stores import upgrade
from holdfast.wiring.sql import open_database, open_store

BATCH = 100
LOOP_JOBS = 20_000
INSERT_JOBS = 5_000
DATABASE = "bench_raw_loop"


def claim_and_settle(servers: Servers, scale: float) -> dict[str, Any]:
    """The ledger's claim + settle loop with its audit, in this process, nothing executed: what bounds a worker."""
    count = max(BATCH, int(LOOP_JOBS * scale))
    servers.drop(DATABASE)
    servers.postgres.create_database(DATABASE)
    url = servers.postgres.url(DATABASE)
    with closing(open_database(url)) as database:
        upgrade.upgrade(database.engine)
    store = open_store(url)
    try:
        store.enqueue_many(ledger.jobs(count))
        settle_down(store)
        wait_for_calm()
        began = time.perf_counter()
        done = ledger.drain(store, BATCH)
        rate = count / (time.perf_counter() - began)
    finally:
        store.close()
        servers.drop(DATABASE)
    assert done == count
    return {"jobs": count, "rate": rate}


def bare_insert(bench: Bench) -> dict[str, Any]:
    """The very statements of our single enqueue, sent again into a fresh database by psycopg alone."""
    count = bench.sized(INSERT_JOBS)
    bench.reset()
    bench.call("record", count)
    statements = (bench.out.parent / "statements.pickle").read_bytes()
    bench.reset()
    (bench.out.parent / "statements.pickle").write_bytes(statements)
    bench.servers.settle(bench.variant)
    answer = bench.call("replay")
    return {"jobs": count, "rate": answer["count"] / answer["seconds"]}
