"""A run's results: samples in the order they were taken, kept as JSON after each of them."""

from __future__ import annotations

import json
from collections.abc import Sequence
from dataclasses import asdict, dataclass, field, replace
from pathlib import Path
from typing import Any

from benchmarks.peers.environments import CACHE

FOLDER = CACHE / "results"

TUNE = "tune"  # a drain with each of the listed concurrencies
ENQUEUE_ONE = "enqueue-one"
ENQUEUE_BULK = "enqueue-bulk"
DRAIN_ONE = "drain-1"
DRAIN_TWO = "drain-2"
LATENCY = "latency"
IDLE = "idle"
RECOVERY_WORKER = "recovery-worker"
RECOVERY_RUNNER = "recovery-runner"

# What stands beside the variants: our ledger's claim + settle loop without workers, and our insert without our code.
RAW_LOOP = "raw-claim-settle"
BARE_INSERT = "bare-psycopg-insert"


@dataclass(frozen=True)
class Sample:
    variant: str
    measure: str
    at: float  # seconds since the run began
    values: dict[str, Any]
    run: int = 0  # of several runs that are reported together


@dataclass(frozen=True)
class Failure:
    variant: str
    measure: str
    reason: str


@dataclass
class Results:
    began: str
    machine: dict[str, str]
    versions: dict[str, dict[str, str]] = field(default_factory=dict)
    concurrency: dict[str, int] = field(default_factory=dict)
    samples: list[Sample] = field(default_factory=list)
    failures: list[Failure] = field(default_factory=list)

    def of(self, variant: str, measure: str) -> list[Sample]:
        return [sample for sample in self.samples if (sample.variant, sample.measure) == (variant, measure)]

    def failure(self, variant: str) -> str | None:
        return next((failure.reason for failure in self.failures if failure.variant == variant), None)

    def variants(self) -> list[str]:
        named = [sample.variant for sample in self.samples] + [failure.variant for failure in self.failures]
        return list(dict.fromkeys(named))

    def save(self, path: Path) -> None:
        path.parent.mkdir(parents=True, exist_ok=True)
        part = path.with_suffix(".part")
        part.write_text(json.dumps(asdict(self), indent=1))
        part.replace(path)


def load(path: Path) -> Results:
    found = json.loads(path.read_text())
    return Results(
        began=found["began"],
        machine=found["machine"],
        versions=found["versions"],
        concurrency=found["concurrency"],
        samples=[Sample(**sample) for sample in found["samples"]],
        failures=[Failure(**failure) for failure in found["failures"]],
    )


def merged(runs: Sequence[Results]) -> Results:
    """Several runs as one, such as one for speed and one for recovery. Only measurements of one run are neighbours."""
    whole = runs[0]
    for number, run in enumerate(runs[1:], start=1):
        whole = Results(
            began=f"{whole.began}, {run.began}",
            machine=whole.machine,
            versions=whole.versions | run.versions,
            concurrency=run.concurrency | whole.concurrency,  # the first was there for speed
            samples=[*whole.samples, *(replace(sample, run=number) for sample in run.samples)],
            failures=[*whole.failures, *run.failures],
        )
    return whole


def newest() -> Path:
    files = sorted(FOLDER.glob("*.json"))
    if not files:
        raise SystemExit("no run has been made yet: make bench-peers")
    return files[-1]
