"""Ask for a small grid of runs, and print what came out. Asked for again, nothing is run twice."""

from __future__ import annotations

import argparse
from collections.abc import Sequence
from itertools import product
from typing import Any

from model import RunSpec
from tasks import run_once

from holdfast import Handle

GROWTHS = (0.1, 0.3, 0.5)
NOISES = (0.05, 0.2)
COLUMNS = ("mean", "stdev", "lowest", "highest")


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--growth", type=float, nargs="+", default=GROWTHS, help="the growth rates of the grid")
    parser.add_argument("--no-wait", action="store_true", help="store the jobs and leave them to the workers")
    parser.add_argument("--timeout", default="5m", help="how long to wait for a run (default: 5m)")
    options = parser.parse_args()

    specs = [RunSpec(growth=growth, noise=noise) for growth, noise in product(options.growth, NOISES)]
    handles = run_once.enqueue_many([{"spec": spec} for spec in specs])
    created = sum(handle.created for handle in handles)
    print(f"{len(handles)} runs: {created} created, {len(handles) - created} reused")
    if not options.no_wait:
        print_table(specs, handles, options.timeout)


def print_table(specs: Sequence[RunSpec], handles: Sequence[Handle[Any]], timeout: str) -> None:
    print(f"{'growth':>6}  {'noise':>5}  " + "  ".join(f"{name:>8}" for name in COLUMNS) + "  result")
    for spec, handle in zip(specs, handles, strict=True):
        found = handle.result(timeout)["statistics"]
        numbers = "  ".join(f"{found[name]:8.1f}" for name in COLUMNS)
        print(f"{spec.growth:6}  {spec.noise:5}  {numbers}  {handle.job().result_ref}")


if __name__ == "__main__":
    main()
