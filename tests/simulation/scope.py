"""How much there is in a history, drawn once from its seed.

Most are small, so that many different ones fit into a run: what breaks a promise mostly needs two who meet and one
fault. A small one alone shows less, and some things need a crowd, or more time: so the rest are large.
"""

from __future__ import annotations

from dataclasses import dataclass
from random import Random

from tests.simulation.weather import LEASE_SECONDS

LARGE_SHARE = 0.05


@dataclass(frozen=True)
class Scope:
    horizon: float  # clients ask and faults begin until then
    workers: int
    processes: int  # of each worker
    slots: int  # of each process
    asks: int
    strangers: int
    blows: int  # things that happen to a worker's processes
    is_scheduled: bool
    is_streamed: bool
    all_chores: bool
    # Of jobs, the share that has it. A history in which all have it shows what one among many would not.
    keyed: float
    sourced: float
    long: float


def drawn(random: Random) -> Scope:
    return _large(random) if random.random() < LARGE_SHARE else _small(random)


def _large(random: Random) -> Scope:
    return Scope(
        horizon=random.uniform(1.0, 3.0) * LEASE_SECONDS,
        workers=random.choice((1, 1, 2, 2, 2, 3)),
        processes=random.choice((1, 1, 2)),
        slots=random.choice((1, 1, 2)),
        asks=random.randint(2, 7),
        strangers=random.choice((0, 1, 1, 2)),
        blows=random.choice((0, 1, 2, 3, 4)),
        is_scheduled=random.random() < 0.4,
        is_streamed=random.random() < 0.4,
        all_chores=random.random() < 0.15,
        **_shares(random),
    )


def _small(random: Random) -> Scope:
    return Scope(
        horizon=random.uniform(0.3, 1.5) * LEASE_SECONDS,
        workers=random.choice((1, 1, 2)),
        processes=1,
        slots=random.choice((1, 2)),
        asks=random.randint(1, 3),
        strangers=random.choice((0, 0, 1)),
        blows=random.choice((0, 1, 1)),
        is_scheduled=random.random() < 0.1,
        is_streamed=random.random() < 0.25,
        all_chores=False,
        **_shares(random),
    )


def _shares(random: Random) -> dict[str, float]:
    return {
        "keyed": random.choice((0.0, 0.3, 0.8)),
        "sourced": random.choice((0.0, 0.3, 0.9)),
        "long": random.choice((0.1, 0.4, 0.9)),
    }
