"""What a server uses: processor time of a process and all below it, and transactions of a database."""

from __future__ import annotations

import time
from collections.abc import Callable
from dataclasses import dataclass

import psutil

from holdfast.stores.sql_store import SqlStore

COMMITS = "SELECT xact_commit + xact_rollback FROM pg_stat_database WHERE datname = current_database()"
CLEAR = "SELECT pg_stat_clear_snapshot()"


@dataclass(frozen=True)
class Used:
    seconds: float
    cores: dict[str, float]  # by the name of the server
    transactions: float  # a second


def over(seconds: float, store: SqlStore, servers: dict[str, int], wait: Callable[[float], None] = time.sleep) -> Used:
    """While it waits for so long. Our own look at the end is one transaction, or two: it is taken off."""
    began, before, commits = time.monotonic(), {name: cpu(pid) for name, pid in servers.items()}, _commits(store)
    wait(seconds)
    took = time.monotonic() - began
    cores = {name: (cpu(pid) - before[name]) / took for name, pid in servers.items()}
    return Used(took, cores, max(0.0, (_commits(store) - commits - 2) / took))


def cpu(pid: int) -> float:
    """Seconds, with what those below it used, also the ones that have ended."""
    total = 0.0
    root = psutil.Process(pid)
    for process in (root, *root.children(recursive=True)):
        try:
            times = process.cpu_times()
        except psutil.NoSuchProcess:
            continue
        total += times.user + times.system + times.children_user + times.children_system
    return total


def _commits(store: SqlStore) -> int:
    """Sessions tell of theirs when they are idle for a second; they are, or it is a small part."""
    with store.database.engine.connect() as connection:
        connection.exec_driver_sql(CLEAR)
        return int(connection.exec_driver_sql(COMMITS).scalar() or 0)
