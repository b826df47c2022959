"""The figures of a run, as `--json` prints them."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Literal

Bound = Literal["round_trip", "flush", "client_cpu", "database", "machine_cpu"]


@dataclass(frozen=True, slots=True)
class Latency:
    """Milliseconds, and of how many."""

    p50: float
    p99: float
    count: int


@dataclass(frozen=True, slots=True)
class Enqueueing:
    """Jobs a second: one job a call, and a thousand a call."""

    single_per_second: float
    bulk_per_second: float


@dataclass(frozen=True, slots=True)
class Loop:
    """Claim and settle without running anything, so many jobs a call. `cpu_share` is what this process computed of the
    time that it took."""

    batch: int
    per_second: float
    cpu_share: float


@dataclass(frozen=True, slots=True)
class Drain:
    """A worker with its runners, from its first claim to its last report. `machine_busy` is None where the system does
    not tell."""

    processes: int
    jobs: int
    per_second: float
    machine_busy: float | None


@dataclass(frozen=True, slots=True)
class Verdict:
    """What bounds one job at a time, batches, and the worker; and all of it in words."""

    single: Bound
    batches: Bound
    worker: Bound
    jobs_per_day: int
    words: tuple[str, ...]


@dataclass(frozen=True, slots=True)
class Report:
    store: str
    dialect: str
    cores: int
    seconds: float
    round_trip_ms: Latency
    commit_ms: Latency
    flush_ms: float
    enqueue: Enqueueing
    claim_settle: tuple[Loop, ...]
    worker: Drain
    pickup_ms: Latency
    verdict: Verdict
    kept_queue: str | None = None  # where the jobs still are, with `--keep`
