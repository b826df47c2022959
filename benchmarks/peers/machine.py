"""What the figures were taken on."""

from __future__ import annotations

import os
import platform
import time
from pathlib import Path

import psutil
import psycopg
import redis

from benchmarks.peers.environments import CACHE
from benchmarks.peers.servers import Servers, sqlite_version

SHOWN = ("fsync", "synchronous_commit", "full_page_writes", "shared_buffers", "max_wal_size", "wal_sync_method")
FLUSHES = 200
BLOCK = b"\0" * 8192


def describe(servers: Servers) -> dict[str, str]:
    with psycopg.connect(servers.postgres_url("postgres")) as connection:
        settings = {name: connection.execute(f"SHOW {name}".encode()).fetchone() for name in ("server_version", *SHOWN)}
    shown = {name: str(row[0]) for name, row in settings.items() if row is not None}
    with redis.Redis.from_url(servers.valkey.url) as client:
        valkey = client.info("server")
    return {
        "cores": f"{os.cpu_count()}",
        "processor": processor(),
        "memory": f"{psutil.virtual_memory().total / 2**30:.0f} GiB",
        "system": f"{_system()}, Linux {platform.release().split('-')[0]}",
        "Python": platform.python_version(),
        "Postgres": f"{shown.pop('server_version')}: " + ", ".join(f"{name}={value}" for name, value in shown.items()),
        "SQLite": sqlite_version(),
        "Redis": f"Valkey {valkey.get('valkey_version', valkey['redis_version'])}, nothing on disk",
        "disk": f"{flush_rate(servers.postgres.workdir):,.0f} flushes/s (8 KiB, fdatasync)",
    }


def processor() -> str:
    for line in Path("/proc/cpuinfo").read_text().splitlines():
        if line.startswith("model name"):
            return line.partition(":")[2].strip()
    return platform.machine()


def _system() -> str:
    try:
        return platform.freedesktop_os_release()["PRETTY_NAME"]
    except OSError:
        return platform.system()


def flush_rate(folder: Path = CACHE) -> float:
    """How often a second the disk takes a block and says that it is safe."""
    path = folder / "flush.bin"
    handle = os.open(path, os.O_WRONLY | os.O_CREAT, 0o600)
    try:
        began = time.perf_counter()
        for _ in range(FLUSHES):
            os.pwrite(handle, BLOCK, 0)
            os.fdatasync(handle)
        return FLUSHES / (time.perf_counter() - began)
    finally:
        os.close(handle)
        path.unlink()
