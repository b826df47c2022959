"""Read by the indexes, some thousand rows of millions.

The planner of Postgres would rather read and sort a great part of the table than follow an index for so many rows, and
is right as long as nobody else wants the memory. So it is told not to, for one transaction; which also has one snapshot
for all of its statements: no job is missed because it moves while they run. SQLite follows indexes by itself.
"""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager

from holdfast.stores.database import Database, Transaction
from holdfast.stores.statements.words import POSTGRES, Statement

_OFF = ("seqscan", "bitmapscan", "sort", "hashjoin", "mergejoin", "material")
_SETTINGS = Statement(
    "following.settings",
    lambda _words: "; ".join(
        (
            "SET TRANSACTION ISOLATION LEVEL REPEATABLE READ, READ ONLY",
            *(f"SET LOCAL enable_{kind} = off" for kind in _OFF),
            "SET LOCAL max_parallel_workers_per_gather = 0",
        )
    ),
)


@contextmanager
def following(database: Database) -> Iterator[Transaction]:
    if database.dialect != POSTGRES:
        with database.reading() as transaction:
            yield transaction
        return
    with database.transaction(_SETTINGS) as transaction:
        yield transaction
