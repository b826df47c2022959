"""A run: environments, servers, rounds of measurements in turn, and the results after each of them."""

from __future__ import annotations

import threading
import time
import traceback
from collections.abc import Callable, Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass
from datetime import UTC, datetime
from functools import partial
from pathlib import Path
from typing import Any

from benchmarks.peers import machine, order, recovery, references, results
from benchmarks.peers.bench import Bench
from benchmarks.peers.environments import NotInstallable, prepare
from benchmarks.peers.foreign import Foreign, calmest
from benchmarks.peers.processes import stopping
from benchmarks.peers.results import Failure, Results, Sample
from benchmarks.peers.servers import Servers, running
from benchmarks.peers.variants import HOLDFAST_POSTGRES, HOLDFAST_SQLITE, HUEY_SQLITE, REFERENCE, VARIANTS

PHASES = ("tune", "enqueue", "drain", "latency", "idle", "recovery")
SIDE_BY_SIDE = 6  # recoveries at once: all they do is wait
RUNNER_LIMIT_SECONDS = 60.0
# Who is held against whom stands side by side.
DRAINS = ((REFERENCE, HOLDFAST_POSTGRES, results.RAW_LOOP), (HUEY_SQLITE, HOLDFAST_SQLITE))
ENQUEUES = ((REFERENCE, HOLDFAST_POSTGRES, results.BARE_INSERT), (HUEY_SQLITE, HOLDFAST_SQLITE))


@dataclass(frozen=True)
class Options:
    variants: Sequence[str]
    phases: Sequence[str] = PHASES
    rounds: int = 3
    scale: float = 1.0
    upgrade: bool = False
    tries: int = 3
    idle_seconds: float = 20.0
    recovery_limit: float = 150.0


def run(options: Options) -> Path:
    began = datetime.now(UTC)
    path = results.FOLDER / f"{began:%Y%m%d-%H%M%S}.json"
    with running() as servers:
        found = Results(began=f"{began:%Y-%m-%d %H:%M} UTC", machine=machine.describe(servers))
        _Run(options, servers, found, path).all()
    return path


class _Run:
    def __init__(self, options: Options, servers: Servers, found: Results, path: Path) -> None:
        self._options = options
        self._servers = servers
        self._results = found
        self._path = path
        self._began = time.monotonic()
        self._foreign = Foreign([servers.postgres.pid, servers.valkey.pid])
        self._benches: dict[str, Bench] = {}
        self._writing = threading.Lock()  # recoveries end side by side

    def all(self) -> None:
        self._prepare()
        phases = {
            "tune": self._tune,
            "enqueue": self._enqueue,
            "drain": self._drain,
            "latency": self._latency,
            "idle": self._idle,
            "recovery": self._recover,
        }
        for phase in PHASES:
            if phase in self._options.phases:
                phases[phase]()

    def _prepare(self) -> None:
        for name in self._options.variants:
            variant = VARIANTS[name]
            try:
                environment = prepare(variant.peer, upgrade=self._options.upgrade)
            except NotInstallable as reason:
                self._failed(name, "environment", f"not installable here: {reason}")
                continue
            self._results.versions[name] = {"Python": environment.python_version, **environment.versions}
            self._results.concurrency[name] = variant.best
            self._benches[name] = Bench(self._servers, variant, environment, self._options.scale)
            _say(f"{name}: {environment.versions}")

    # phases

    def _enqueue(self) -> None:
        modes = {results.ENQUEUE_ONE: "one", results.ENQUEUE_BULK: "bulk"}
        for measure, mode in modes.items():
            names = [name for name, bench in self._benches.items() if mode == "one" or bench.variant.bulk]
            beside = results.BARE_INSERT if mode == "one" else None
            for name in self._rounds(names, ENQUEUES, beside):
                if name == results.BARE_INSERT:
                    bench = self._benches[HOLDFAST_POSTGRES]
                    self._take(name, measure, partial(references.bare_insert, bench))
                else:
                    bench = self._benches[name]
                    self._take(name, measure, partial(bench.enqueue_rate, mode))

    def _drain(self) -> None:
        for workers, measure in ((1, results.DRAIN_ONE), (2, results.DRAIN_TWO)):
            beside = results.RAW_LOOP if workers == 1 else None
            for name in self._rounds(list(self._benches), DRAINS, beside):
                if name == results.RAW_LOOP:
                    self._take(name, measure, lambda: references.claim_and_settle(self._servers, self._options.scale))
                else:
                    self._take_drain(name, measure, workers, self._results.concurrency[name])

    def _tune(self) -> None:
        """Which of the listed concurrencies drains fastest, here and today."""
        for name, bench in self._benches.items():
            if len(bench.variant.concurrencies) == 1:
                continue
            for concurrency in bench.variant.concurrencies:
                self._take_drain(name, results.TUNE, 1, concurrency)
            taken = [sample for sample in self._results.of(name, results.TUNE) if sample.values.get("rate")]
            if taken:
                best = max(taken, key=lambda sample: float(sample.values["rate"]))
                self._results.concurrency[name] = int(best.values["concurrency"])

    def _take_drain(self, name: str, measure: str, workers: int, concurrency: int) -> None:
        bench = self._benches[name]
        self._take(name, measure, lambda: bench.drain(workers, concurrency))

    def _latency(self) -> None:
        for name in self._rounds(list(self._benches), DRAINS):
            self._take(name, results.LATENCY, self._benches[name].latency)

    def _idle(self) -> None:
        seconds = self._options.idle_seconds
        for name, bench in self._benches.items():
            self._take(name, results.IDLE, partial(bench.idle, seconds), tries=1)

    def _recover(self) -> None:
        """A runner's place is taken within seconds, which wants quiet; dead workers are waited for side by side."""
        limit = min(self._options.recovery_limit, RUNNER_LIMIT_SECONDS)
        for name, bench in self._benches.items():
            concurrency = bench.variant.responsive
            taken = partial(recovery.runner_killed, bench, concurrency, limit)
            self._take(name, results.RECOVERY_RUNNER, taken, tries=1)
        with ThreadPoolExecutor(SIDE_BY_SIDE) as pool:
            try:
                list(pool.map(self._recover_from_a_dead_worker, self._benches.items()))
            except BaseException:
                stopping.set()  # each ends what it started
                pool.shutdown(cancel_futures=True)
                raise

    def _recover_from_a_dead_worker(self, named: tuple[str, Bench]) -> None:
        name, bench = named
        concurrency, limit = bench.variant.responsive, self._options.recovery_limit
        self._take(name, results.RECOVERY_WORKER, lambda: recovery.worker_killed(bench, concurrency, limit), tries=0)

    # one measurement

    def _rounds(self, names: list[str], pairs: Sequence[Sequence[str]], beside: str | None = None) -> list[str]:
        """All rounds as one list; what stands beside ours is only measured where ours is."""
        if beside is not None and HOLDFAST_POSTGRES in names:
            names = [*names, beside]
        return order.rounds(names, pairs, REFERENCE, self._options.rounds)

    def _take(
        self, name: str, measure: str, take: Callable[[], dict[str, Any] | None], tries: int | None = None
    ) -> None:
        """A peer that breaks has its row say so, and the rest goes on."""
        wanted = self._options.tries if tries is None else tries
        at = time.monotonic() - self._began
        try:
            values, cores = calmest(self._foreign, take, wanted) if wanted else (take(), None)
        except Exception as error:
            traceback.print_exc()
            self._failed(name, measure, f"{measure}: {error}" if str(error) else f"{measure}: {error!r}")
            return
        if values is None:
            return
        with self._writing:
            self._results.samples.append(Sample(name, measure, round(at, 1), {**values, "foreign_cores": cores}))
            self._results.save(self._path)
        _say(f"{name} {measure} {_short(values)} (others: {cores} cores)")

    def _failed(self, name: str, measure: str, reason: str) -> None:
        with self._writing:
            self._results.failures.append(Failure(name, measure, reason))
            self._results.save(self._path)
        _say(f"{name}: {reason}")


def _short(values: dict[str, Any]) -> str:
    return " ".join(
        f"{name}={value:,.2f}" if isinstance(value, float) else f"{name}={value}" for name, value in values.items()
    )


def _say(text: str) -> None:
    print(f"{datetime.now(UTC):%H:%M:%S} {text}", flush=True)
