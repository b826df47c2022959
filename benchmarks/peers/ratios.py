"""Ratios between neighbours in time: on a shared machine a rate says little, two taken one after the other say more."""

from __future__ import annotations

import statistics
from collections.abc import Sequence
from dataclasses import dataclass

from benchmarks.peers.results import Sample


@dataclass(frozen=True)
class Ratio:
    median: float
    least: float
    most: float
    pairs: int


def of_neighbours(ours: Sequence[Sample], theirs: Sequence[Sample], value: str) -> Ratio | None:
    """Each of ours over the mean of theirs that were taken last before it and first after it; the median of these."""
    found = []
    for sample in ours:
        near = _neighbours(sample, [other for other in theirs if other.values.get(value)])
        if near and sample.values.get(value) is not None:
            found.append(sample.values[value] / statistics.mean(other.values[value] for other in near))
    return Ratio(statistics.median(found), min(found), max(found), len(found)) if found else None


def _neighbours(sample: Sample, others: Sequence[Sample]) -> list[Sample]:
    same_run = [other for other in others if other.run == sample.run]
    before = [other for other in same_run if other.at <= sample.at]
    after = [other for other in same_run if other.at > sample.at]
    last = max(before, key=lambda other: other.at, default=None)
    first = min(after, key=lambda other: other.at, default=None)
    return [other for other in (last, first) if other is not None]
