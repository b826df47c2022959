"""python -m tests.simulation --seeds 0..99999 [--processes 2] [--trace]

Simulates one history for every seed of the range (the last one included). Exit 1 on any violation, with the seed and
the history that shows it; the same seed gives the same history again.
"""

from __future__ import annotations

import argparse
import sys
import time
from collections import Counter

from tests.simulation.history import simulate
from tests.simulation.running import Summary, run_in_portions, told
from tests.simulation.weather import FAULT_KINDS

TOLD_EVERY_SECONDS = 10.0
SHOWN = 3


def seeds(text: str) -> range:
    first, dots, last = text.partition("..")
    return range(int(first), int(last if dots else first) + 1)


def main(arguments: list[str] | None = None) -> int:
    parser = argparse.ArgumentParser(prog="python -m tests.simulation", description=(__doc__ or "").split("\n\n")[1])
    parser.add_argument("--seeds", type=seeds, required=True, metavar="A..B")
    parser.add_argument("--processes", type=int, default=1)
    parser.add_argument("--trace", action="store_true", help="tell every history in full")
    given = parser.parse_args(arguments)
    if given.trace:
        for seed in given.seeds:
            print(*simulate(seed, is_told=True).trace, sep="\n")
    summary, seconds = _run(given.seeds, given.processes)
    for result in summary.failed[:SHOWN]:
        print(told(result))
    _tell(summary, seconds)
    return 1 if summary.failed else 0


def _run(wanted: range, processes: int) -> tuple[Summary, float]:
    began = told_at = time.monotonic()
    summary = Summary()
    for portion in run_in_portions(wanted, processes):
        summary.join(portion)
        now = time.monotonic()
        if now - told_at > TOLD_EVERY_SECONDS or portion.failed:
            told_at = now
            rate = summary.histories / (now - began) * 60
            bad = f", violations in seeds {_named(summary)}" if summary.failed else ""
            print(f"{summary.histories:,} of {len(wanted):,} histories, {rate:,.0f} a minute{bad}", file=sys.stderr)
    return summary, time.monotonic() - began


def _named(summary: Summary) -> str:
    return ", ".join(str(result.seed) for result in summary.failed[:20])


def _tell(summary: Summary, seconds: float) -> None:
    per_minute = summary.histories / seconds * 60
    print(f"{summary.histories:,} histories in {seconds:,.0f} s ({per_minute:,.0f} a minute), {summary.steps:,} steps,")
    print(f"{summary.virtual_seconds / 3600:,.1f} hours of virtual time")
    print("faults:")
    _table({kind: summary.faults[kind] for kind in FAULT_KINDS})
    print("events:")
    _table(summary.events)
    if summary.failed:
        rules = Counter(rule for result in summary.failed for rule in {one.rule for one in result.violations})
        print(f"violations in {len(summary.failed)} histories, seeds {_named(summary)}:")
        _table(rules)
    else:
        print("no violation")


def _table(counts: dict[str, int] | Counter[str]) -> None:
    for name, count in sorted(counts.items(), key=lambda item: -item[1]):
        print(f"  {count:>9,}  {name}")


if __name__ == "__main__":
    sys.exit(main())
