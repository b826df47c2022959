"""Many histories, one after the other or in several processes, and what they come to."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Iterator
from concurrent.futures import ProcessPoolExecutor
from dataclasses import dataclass, field
from multiprocessing import get_context

from tests.simulation.history import Result, simulate, spare_the_collector

PORTION = 50
SHOWN_LINES = 120  # of a history that went wrong, up to its first violation


@dataclass
class Summary:
    histories: int = 0
    steps: int = 0
    virtual_seconds: float = 0.0
    faults: Counter[str] = field(default_factory=Counter)
    events: Counter[str] = field(default_factory=Counter)
    failed: list[Result] = field(default_factory=list)

    def add(self, result: Result) -> None:
        self.histories += 1
        self.steps += result.steps
        self.virtual_seconds += result.seconds
        self.faults += result.faults
        self.events += result.events
        if result.violations:
            self.failed.append(result)

    def join(self, other: Summary) -> None:
        self.histories += other.histories
        self.steps += other.steps
        self.virtual_seconds += other.virtual_seconds
        self.faults += other.faults
        self.events += other.events
        self.failed += other.failed


def run(seeds: Iterable[int]) -> Summary:
    summary = Summary()
    for seed in seeds:
        summary.add(simulate(seed))
    return summary


def portions(seeds: range) -> list[range]:
    return [seeds[start : start + PORTION] for start in range(0, len(seeds), PORTION)]


def run_in_portions(seeds: range, processes: int) -> Iterator[Summary]:
    """A summary for each portion, as they come."""
    if processes == 1:
        spare_the_collector()
        yield from map(run, portions(seeds))
        return
    with ProcessPoolExecutor(processes, get_context("spawn"), spare_the_collector) as pool:
        yield from pool.map(run, portions(seeds))


def assert_kept(summary: Summary) -> None:
    """Every promise, in every history."""
    assert not summary.failed, "\n".join(told(result) for result in summary.failed[:2])


def told(result: Result) -> str:
    """What went wrong, and what led there. What comes after the first violation is left out."""
    lines = result.trace
    first = next((place for place, line in enumerate(lines) if "VIOLATION" in line), len(lines) - 1)
    shown = lines[max(0, first + 1 - SHOWN_LINES) : first + 1]
    left_out = len(lines) - len(shown)
    return "\n".join(
        [
            f"seed {result.seed}:",
            *(f"  {violation}" for violation in result.violations),
            f"  its history, {left_out} of {len(lines)} lines left out (--seeds {result.seed} --trace tells all):",
            *(f"    {line}" for line in shown),
        ]
    )
