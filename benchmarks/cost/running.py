"""python -m benchmarks cost [--against REV]: CPU microseconds per job, split by process, on both databases.

CPU time, not wall time, because it says the same on a noisy machine. With `--against`, the sources of that revision
run in turns with those of this folder, and each ratio is the median over the rounds. `--against cost-baseline` is the
revision in benchmarks/baseline.txt. Both run with the packages that are installed now. Needs Linux and git.
"""

from __future__ import annotations

import argparse
import io
import json
import os
import statistics
import subprocess
import sys
import tarfile
import tempfile
from collections.abc import Iterator, Mapping, Sequence
from pathlib import Path

from benchmarks.databases import Databases, databases
from benchmarks.tables import markdown

ROOT = Path(__file__).parents[2]
BASELINE = "cost-baseline"
DATABASES = ("sqlite", "postgres")
JOBS, PICKUPS, ROUNDS = 10_000, 300, 5
MIN_JOBS, MIN_PICKUPS = 50, 5
# On top of benchmarks.databases.DURABLE: no waits for a disk, no maintenance at a time that the server chooses.
QUIET = {"fsync": "off", "autovacuum": "off", "checkpoint_timeout": "1h"}
MEMORY = Path("/dev/shm")
# Of one plain job: it is enqueued by itself, and drained with many others.
TOTAL = ("single enqueue", "drain")

Costs = dict[tuple[str, str], float]  # by step and process: CPU seconds per job


def run(arguments: Sequence[str]) -> int:
    options = _parser().parse_args(arguments)
    kinds = [options.database] if options.database else DATABASES
    if "TMPDIR" not in os.environ and os.access(MEMORY, os.W_OK | os.X_OK):
        tempfile.tempdir = str(MEMORY)  # for SQLite files
    with (
        tempfile.TemporaryDirectory(prefix="holdfast-cost-") as other,
        databases(postgres="postgres" in kinds, settings=QUIET) as handed,
    ):
        sources = {"this": ROOT / "src"}
        if options.against:
            sources[options.against] = _check_out(options.against, Path(other))
        for kind in kinds:
            rounds = [
                {name: _turn(handed, kind, sources[name], options.scale) for name in order}
                for order in _orders([*sources], options.rounds)
            ]
            print(f"### CPU time per job, {kind}\n\n{render(rounds, options.against)}\n", flush=True)
    return 0


def _parser() -> argparse.ArgumentParser:
    parser = argparse.ArgumentParser(
        "python -m benchmarks cost", description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("--against", metavar="REV", help=f"a revision to compare with, such as {BASELINE}")
    parser.add_argument("--database", choices=DATABASES, help="default: both")
    parser.add_argument("--rounds", type=int, default=ROUNDS, help=f"turns of each revision (default: {ROUNDS})")
    parser.add_argument("--scale", type=float, default=1.0, help=f"1 is {JOBS:,} jobs; less is less exact")
    return parser


def _check_out(revision: str, folder: Path) -> Path:
    if revision == BASELINE:
        revision = (ROOT / "benchmarks" / "baseline.txt").read_text(encoding="utf-8").strip()
    command = ["git", "archive", "--format=tar", revision, "src"]
    archive = subprocess.run(command, cwd=ROOT, capture_output=True, check=False)
    if archive.returncode != 0:
        sys.exit(f"error: --against {revision}: {archive.stderr.decode().strip()}")
    with tarfile.open(fileobj=io.BytesIO(archive.stdout)) as packed:
        packed.extractall(folder, filter="data")
    return folder / "src"


def _orders(names: list[str], rounds: int) -> Iterator[list[str]]:
    """The first is the second in the next round, so that a machine that gets slower favours none."""
    for number in range(rounds):
        yield names if number % 2 == 0 else names[::-1]


def _turn(handed: Databases, kind: str, source: Path, scale: float) -> Costs:
    jobs, pickups = max(MIN_JOBS, int(JOBS * scale)), max(MIN_PICKUPS, int(PICKUPS * scale))
    with tempfile.TemporaryDirectory(prefix="holdfast-cost-") as folder, handed.empty(kind) as url:
        command = [sys.executable, "-m", "benchmarks.cost.turn", "--jobs", str(jobs), "--pickups", str(pickups)]
        if kind == "postgres":
            command += ["--server", str(handed.server.pid)]
        environment = {**os.environ, "DATABASE_URL": url, "PYTHONPATH": os.pathsep.join((str(source), str(ROOT)))}
        environment.pop("PYTHONDONTWRITEBYTECODE", None)  # to compile is not what is measured
        done = subprocess.run(command, cwd=folder, env=environment, stdout=subprocess.PIPE, check=True)
        found: dict[str, dict[str, float]] = json.loads(done.stdout)
        return {(step, process): seconds for step, used in found.items() for process, seconds in used.items()}


def render(rounds: Sequence[Mapping[str, Costs]], against: str | None) -> str:
    """A row for each step and process; microseconds per job, or per start of a process."""
    complete = [{name: _with_total(costs) for name, costs in turns.items()} for turns in rounds]
    rows: list[list[object]] = []
    for key in complete[0]["this"]:
        ours = [turns["this"][key] for turns in complete]
        row: list[object] = [*key, _microseconds(ours)]
        if against:
            theirs = [turns[against][key] for turns in complete]
            ratios = [one / other for one, other in zip(ours, theirs, strict=True) if other]
            spread = f"{min(ratios):.2f} to {max(ratios):.2f}" if ratios else ""
            row += [_microseconds(theirs), f"{statistics.median(ratios):.3f}" if ratios else "", spread]
        rows.append(row)
    return markdown(["step", "process", "us", *([f"us, {against}", "ratio", "range"] if against else [])], rows)


def _with_total(costs: Costs) -> Costs:
    steps = {step: sum(seconds for (name, _), seconds in costs.items() if name == step) for step in TOTAL}
    return {**costs, ("total: " + " + ".join(TOTAL), "all"): sum(steps.values())}


def _microseconds(seconds: list[float]) -> str:
    return f"{statistics.median(seconds) * 1e6:,.1f}"
