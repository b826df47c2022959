"""What is measured: each peer with its best setting, and how that was found.

`concurrencies` are tried in a full run, one drain each, and the best is kept; `best` is what won here before and what
`--quick` uses. Sizes are such that a drain lasts some seconds at the rate that was seen.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Literal

from benchmarks.peers.environments import OURS

Store = Literal["postgres", "redis", "sqlite"]

REFERENCE = "pgqueuer"
HOLDFAST_POSTGRES = "holdfast-postgres"
HOLDFAST_SQLITE = "holdfast-sqlite"
HUEY_SQLITE = "huey-sqlite"
MANY = 200_000  # in a bulk enqueue of those that take tens of thousands a second
RESPONSIVE = 10  # latency and idle are measured at the listed concurrency that is closest to this


@dataclass(frozen=True)
class Variant:
    name: str
    peer: str  # its environment and adapter
    store: Store
    concurrencies: tuple[int, ...]
    best: int
    setting: str  # in words: what was set, and why
    enqueue: int = 5_000
    drain: int = 10_000
    bulk: int = 20_000  # 0: it has no bulk enqueue
    environment: Mapping[str, str] = field(default_factory=dict)

    @property
    def ours(self) -> bool:
        return self.peer == OURS

    @property
    def database(self) -> str:
        return "bench_" + self.name.replace("-", "_")

    @property
    def responsive(self) -> int:
        """The concurrency for measurements of a worker with little to do."""
        return min(self.concurrencies, key=lambda concurrency: abs(concurrency - RESPONSIVE))


VARIANTS = {
    variant.name: variant
    for variant in (
        Variant(
            HOLDFAST_POSTGRES,
            OURS,
            "postgres",
            (0,),
            0,
            "as shipped: `holdfast worker module:app`, a runner a core",
            drain=50_000,
            bulk=MANY,
        ),
        Variant(
            HOLDFAST_SQLITE, OURS, "sqlite", (0,), 0, "as shipped, WAL and synchronous=FULL", drain=20_000, bulk=MANY
        ),
        Variant(
            "holdfast-async",
            OURS,
            "postgres",
            (0,),
            0,
            "as shipped, the task an `async def` (64 coroutines in one runner)",
            drain=50_000,
            bulk=MANY,
            environment={"BENCH_ASYNC": "1"},
        ),
        Variant(
            REFERENCE,
            "pgqueuer",
            "postgres",
            (10, 100, 200, 500),
            200,
            "asyncpg and uvloop; concurrency is its batch size (default 10, which is slower)",
            drain=50_000,
            bulk=MANY,
        ),
        Variant(
            "awa",
            "awa",
            "postgres",
            (50, 200, 1024),
            1024,
            "uvloop, COPY for bulk; its fresh tables, not the older ones",
            enqueue=2_000,
            drain=20_000,
            bulk=MANY,
        ),
        Variant("oban", "oban", "postgres", (10, 50), 50, "uvloop, compiled psycopg"),
        Variant(
            "chancy",
            "chancy",
            "postgres",
            (10, 50, 200),
            50,
            "asyncio executor; eager_polling, without which it takes one batch a second",
            environment={"BENCH_EAGER": "1"},
        ),
        Variant(
            "absurd",
            "absurd",
            "postgres",
            (10, 50),
            50,
            "asyncio worker, its default poll of 250 ms; no bulk enqueue",
            drain=3_000,
            bulk=0,
        ),
        Variant(
            "saq-postgres",
            "saq",
            "postgres",
            (10, 50),
            10,
            "uvloop, compiled psycopg; no bulk enqueue",
            drain=3_000,
            bulk=0,
            environment={"BENCH_BACKEND": "postgres"},
        ),
        Variant(
            "procrastinate", "procrastinate", "postgres", (1, 10, 50), 10, "asyncio, compiled psycopg", drain=3_000
        ),
        Variant(
            "dbos",
            "dbos",
            "postgres",
            (50, 1000),
            1000,
            "polls every 50 ms (its default is 1 s), concurrency not limited; bulk is one transaction of many calls",
            enqueue=1_500,
            drain=2_000,
            environment={"BENCH_POLL": "0.05"},
        ),
        Variant(
            "dramatiq", "dramatiq", "redis", (8, 32), 32, "one process of threads, hiredis; no bulk enqueue", bulk=0
        ),
        Variant(
            "taskiq",
            "taskiq",
            "redis",
            (10, 100),
            100,
            "Redis stream, the broker that acknowledges; no bulk enqueue",
            bulk=0,
        ),
        Variant(
            "huey-redis",
            "huey",
            "redis",
            (1, 4, 10),
            10,
            "threads, hiredis; a job is off the list before it runs",
            bulk=0,
            environment={"BENCH_BACKEND": "redis"},
        ),
        Variant(
            "saq-redis",
            "saq",
            "redis",
            (10, 50),
            10,
            "uvloop, hiredis; no bulk enqueue",
            bulk=0,
            environment={"BENCH_BACKEND": "redis"},
        ),
        Variant(
            "celery-solo",
            "celery",
            "redis",
            (1,),
            1,
            "the solo pool, its fastest for no-op jobs; results ignored",
            drain=4_000,
            bulk=0,
            environment={"BENCH_POOL": "solo"},
        ),
        Variant(
            "celery-prefork",
            "celery",
            "redis",
            (2,),
            2,
            "its default pool, two processes; results ignored",
            drain=4_000,
            bulk=0,
            environment={"BENCH_POOL": "prefork"},
        ),
        Variant("rq", "rq", "redis", (1,), 1, "SimpleWorker, which does not fork for each job; hiredis", drain=2_000),
        Variant(
            "rq-fork",
            "rq",
            "redis",
            (1,),
            1,
            "its default worker, which forks for each job; hiredis",
            drain=400,
            environment={"BENCH_FORK": "1", "BENCH_PACE": "0.1"},
        ),
        Variant(
            "flexiq",
            "flexiq",
            "sqlite",
            (10, 50),
            10,
            "batches of 200 and polls every 5 ms (its defaults are 1 and 50 ms); it sets synchronous=NORMAL",
            drain=5_000,
            bulk=MANY,
            environment={"BENCH_BATCH": "200", "BENCH_POLL": "5"},
        ),
        Variant(
            HUEY_SQLITE,
            "huey",
            "sqlite",
            (1, 4),
            1,
            "threads; WAL and synchronous=FULL; a job is out of the table before it runs; no bulk enqueue",
            drain=10_000,
            bulk=0,
            environment={"BENCH_BACKEND": "sqlite"},
        ),
    )
}


def redis_database(variant: Variant) -> int:
    """A database of its own in the one Redis, so that several can be tried side by side."""
    return [name for name, other in VARIANTS.items() if other.store == "redis"].index(variant.name)
