"""Workers as processes: started, stopped, killed with all they started, weighed."""

from __future__ import annotations

import os
import subprocess
import threading
import time
from collections.abc import Callable, Iterable, Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass
from pathlib import Path

import psutil

from benchmarks.peers.environments import ADAPTERS

STOP_SECONDS = 15.0
stopping = threading.Event()  # somebody interrupted the run: nobody waits any longer
_OWN_SETTINGS = ("HOLDFAST_", "BENCH_", "OTEL_", "PG")  # of whoever runs the benchmark; not meant for the peers
_NAMED = {"DATABASE_URL", "REDIS_URL", "RQ_URL", "CACHE_URL", "LEASE_SECONDS", "POLL_INTERVAL", "PYTHONPATH"}


def clean_environment(extra: Mapping[str, str]) -> dict[str, str]:
    kept = {
        name: value for name, value in os.environ.items() if name not in _NAMED and not name.startswith(_OWN_SETTINGS)
    }
    return {**kept, **extra}


class Worker:
    """One worker of a peer, in a session of its own so that nobody's Ctrl-C reaches it by accident."""

    def __init__(self, command: Sequence[str], environment: Mapping[str, str], log: Path) -> None:
        with log.open("ab") as out:
            self._process = subprocess.Popen(
                command,
                env=dict(environment),
                cwd=ADAPTERS,
                stdin=subprocess.DEVNULL,
                stdout=out,
                stderr=out,
                start_new_session=True,
            )

    @property
    def pid(self) -> int:
        return self._process.pid

    def ended(self) -> bool:
        return self._process.poll() is not None

    def stop(self) -> None:
        family = self.family()
        if not self.ended():
            self._process.terminate()
        with suppress(subprocess.TimeoutExpired):
            self._process.wait(STOP_SECONDS)
        _kill(family)
        self._process.wait()

    def kill(self) -> None:
        """The worker and all that it started, as when its container dies."""
        _kill(self.family())
        self._process.wait()

    def family(self) -> list[psutil.Process]:
        with suppress(psutil.Error):
            head = psutil.Process(self._process.pid)
            return [head, *head.children(recursive=True)]
        return []


def _kill(family: Iterable[psutil.Process]) -> None:
    for process in family:
        with suppress(psutil.Error):
            process.kill()


@dataclass(frozen=True)
class Weight:
    processes: int
    rss_mib: float
    pss_mib: float


def weigh(worker: Worker) -> Weight:
    family = worker.family()
    infos = [process.memory_full_info() for process in family]
    return Weight(len(family), sum(info.rss for info in infos) / 2**20, sum(info.pss for info in infos) / 2**20)


def cpu_seconds(worker: Worker) -> float:
    total = 0.0
    for process in worker.family():
        with suppress(psutil.Error):
            total += sum(process.cpu_times()[:2])
    return total


def wait_for(condition: Callable[[], bool], seconds: float, pause: float = 0.02) -> bool:
    """Whether it came true in time, and before the run was told to stop."""
    deadline = time.monotonic() + seconds
    while not condition():
        if time.monotonic() >= deadline or stopping.is_set():
            return False
        time.sleep(pause)
    return True
