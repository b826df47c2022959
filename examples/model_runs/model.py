"""What a model is, and one that stands in for the real thing. Nothing here knows of jobs."""

from __future__ import annotations

import hashlib
import json
import random
import statistics
import time
from collections.abc import Callable
from dataclasses import asdict, dataclass
from typing import Protocol

Progress = Callable[[int, int], None]  # members done, members in all
Statistics = dict[str, float]


@dataclass(frozen=True, slots=True)
class RunSpec:
    """Everything a run depends on: two equal specs are one run."""

    growth: float  # a year, far below the capacity
    noise: float  # standard deviation of a year's growth
    capacity: float = 1_000.0
    years: int = 40
    members: int = 20  # of the ensemble


class Model(Protocol):
    """Change `version` whenever the same spec would give another result: it then counts as another run."""

    @property
    def name(self) -> str: ...

    @property
    def version(self) -> str: ...

    def run(self, spec: RunSpec, progress: Progress) -> Statistics: ...


@dataclass(frozen=True, slots=True)
class LogisticGrowth:
    """An ensemble of noisy populations. Each member takes a moment, as if there were something to compute."""

    name: str = "logistic-growth"
    version: str = "1"
    seconds_per_member: float = 0.01

    def run(self, spec: RunSpec, progress: Progress) -> Statistics:
        chance = random.Random(self._seed(spec))
        ends = []
        for member in range(spec.members):
            time.sleep(self.seconds_per_member)
            ends.append(_last_population(spec, chance))
            progress(member + 1, spec.members)
        return {
            "mean": round(statistics.fmean(ends), 6),
            "stdev": round(statistics.stdev(ends), 6),
            "lowest": round(min(ends), 6),
            "highest": round(max(ends), 6),
            "extinct": sum(end < 1.0 for end in ends) / len(ends),
        }

    def _seed(self, spec: RunSpec) -> int:
        """From the spec and nothing else: wherever and whenever it runs, the same spec gives the same numbers."""
        identity = json.dumps([self.name, self.version, asdict(spec)], sort_keys=True)
        return int.from_bytes(hashlib.sha256(identity.encode()).digest()[:8])


def _last_population(spec: RunSpec, chance: random.Random) -> float:
    population = spec.capacity / 10
    for _ in range(spec.years):
        growth = spec.growth * (1 - population / spec.capacity)
        population *= max(0.0, 1 + chance.gauss(growth, spec.noise))
    return population
