from __future__ import annotations

import argparse
import platform
import sqlite3
import sys
from collections.abc import Callable

from benchmarks import claim_cost, dashboard, doors, governance, ledger, reactions, retention, sizes, worker
from benchmarks.cost import running as cost
from benchmarks.curves import running as curves
from benchmarks.databases import Databases, databases

PARTS: dict[str, Callable[[Databases, float], str]] = {
    "ledger": lambda handed, scale: ledger.run(handed, scale=scale),
    "claim_cost": lambda handed, scale: claim_cost.run(handed, scale=scale),
    "governance": lambda handed, scale: governance.run(handed, scale=scale),
    "worker": lambda handed, scale: worker.run(handed, scale=scale),
    "doors": lambda handed, scale: doors.run(handed, scale=scale),
    "dashboard": lambda handed, scale: dashboard.run(handed, scale=scale),
    "reactions": lambda handed, scale: reactions.run(handed, scale=scale),
    "retention": lambda handed, scale: retention.run(handed, scale=scale),
    "sizes": lambda handed, scale: sizes.run(handed, scale=scale),
}


def main() -> int:
    if sys.argv[1:2] == ["cost"]:
        return cost.run(sys.argv[2:])
    parser = argparse.ArgumentParser(prog="python -m benchmarks", description="What Holdfast costs on this machine.")
    parser.add_argument(
        "parts", nargs="*", help=f"which: {', '.join(PARTS)} (default: all); or: curves [name …]; or: cost --help"
    )
    parser.add_argument("--scale", type=float, default=1.0, help="fraction of the full size, such as 0.01")
    options = parser.parse_args()
    if options.parts[:1] == ["curves"]:
        return _curves(parser, options.parts[1:], options.scale)
    unknown = [part for part in options.parts if part not in PARTS]
    if unknown:
        parser.error(f"no benchmark is called {unknown[0]!r}; there are {', '.join(PARTS)}")
    print(f"Python {platform.python_version()}, SQLite {sqlite3.sqlite_version}, {platform.machine()}\n", flush=True)
    with databases() as handed:
        for part in options.parts or PARTS:
            print(PARTS[part](handed, options.scale) + "\n", flush=True)
    return 0


def _curves(parser: argparse.ArgumentParser, names: list[str], scale: float) -> int:
    unknown = [name for name in names if name not in curves.CURVES]
    if unknown:
        parser.error(f"no curve is called {unknown[0]!r}; there are {', '.join(curves.CURVES)}")
    with databases() as handed:
        curves.run(handed, names, scale)
    return 0


if __name__ == "__main__":
    sys.exit(main())
