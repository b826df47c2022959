"""One variant on the run's servers: its adapter's commands, its workers, and what each measurement of it is."""

from __future__ import annotations

import json
import subprocess
import time
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

from benchmarks.peers import records
from benchmarks.peers.environments import ADAPTERS, Environment
from benchmarks.peers.probes import Probe, open_probe
from benchmarks.peers.processes import Worker, clean_environment, cpu_seconds, wait_for, weigh
from benchmarks.peers.servers import Servers
from benchmarks.peers.variants import Variant

COMMAND_SECONDS = 300.0
STANDSTILL_SECONDS = 40.0  # no job began for so long: the drain is over, and what is missing is lost
SHOWN_SECONDS = 30.0  # after the last job's start: how long the store may take to show the end of it
AFTERWARDS_SECONDS = 1.0  # for starts that should not come
START_SECONDS = 60.0
WARM_JOBS = 5
WARM_FROM = 1_000_000_000  # numbers of jobs that only warm a worker up
LATENCY_JOBS = 200
REST_SECONDS = 10.0  # from the last job until a worker counts as idle: many poll less and less often


class Broken(Exception):
    """A peer did not do what was asked; the message is for its row."""


class Bench:
    def __init__(self, servers: Servers, variant: Variant, environment: Environment, scale: float) -> None:
        self.servers = servers
        self.variant = variant
        self._environment = environment
        self._scale = scale
        self._folder = servers.folder(variant)

    @property
    def out(self) -> Path:
        return self._folder / "starts.bin"

    @property
    def pids(self) -> Path:
        return self._folder / "pids.txt"

    # what a peer is asked to do

    def call(self, *arguments: object, concurrency: int = 0) -> dict[str, Any]:
        command = self._command(*arguments)
        try:
            done = subprocess.run(
                command,
                env=self._variables(concurrency),
                cwd=ADAPTERS,
                capture_output=True,
                text=True,
                timeout=COMMAND_SECONDS,
                check=False,
            )
        except subprocess.TimeoutExpired:
            raise Broken(f"{arguments[0]}: no end after {COMMAND_SECONDS:.0f} s") from None
        if done.returncode != 0:
            raise Broken(f"{arguments[0]}: {_last_line(done.stderr)}")
        answers = [line.removeprefix("BENCH ") for line in done.stdout.splitlines() if line.startswith("BENCH ")]
        answer: dict[str, Any] = json.loads(answers[-1]) if answers else {}
        return answer

    def reset(self, concurrency: int = 0) -> None:
        self.servers.reset(self.variant)
        self.call("setup", concurrency=concurrency)

    def enqueue(self, count: int, mode: str, first: int = 0) -> dict[str, Any]:
        return self.call("enqueue", count, mode, first)

    @contextmanager
    def workers(self, count: int, concurrency: int, seconds: float = 0.0) -> Iterator[list[Worker]]:
        started: list[Worker] = []
        try:
            for number in range(count):
                started.append(self.start(concurrency, seconds, number))
            yield started
        finally:
            for worker in started:
                worker.stop()

    def start(self, concurrency: int, seconds: float = 0.0, number: int = 0) -> Worker:
        """`number` is for peers whose workers have names that stay: who takes the place of a dead one has its name."""
        variables = self._variables(concurrency, seconds) | {"BENCH_WORKER": str(number)}
        return Worker(self._command("worker"), variables, self._folder / "worker.log")

    def _command(self, *arguments: object) -> list[str]:
        adapter = ADAPTERS / f"{self.variant.peer}_peer.py"
        return [str(self._environment.python), str(adapter), *map(str, arguments)]

    def _variables(self, concurrency: int, seconds: float = 0.0) -> dict[str, str]:
        variant, folder = self.variant, self._folder
        postgres = self.servers.postgres_url(variant.database)
        return clean_environment(
            {
                "BENCH_PG": postgres,
                "BENCH_REDIS": self.servers.redis_url(variant),
                "BENCH_FOLDER": str(folder),
                "BENCH_OUT": str(self.out),
                "BENCH_PIDS": str(self.pids),
                "BENCH_SECONDS": str(seconds),
                "BENCH_CONCURRENCY": str(concurrency or variant.best),
                "DATABASE_URL": postgres if variant.store == "postgres" else f"sqlite:///{folder / 'holdfast.db'}",
                **variant.environment,
            }
        )

    def sized(self, count: int) -> int:
        return max(20, int(count * self._scale))

    # what is measured

    def enqueue_rate(self, mode: str) -> dict[str, Any]:
        self.reset()
        self.servers.settle(self.variant)
        count = self.sized(self.variant.bulk if mode == "bulk" else self.variant.enqueue)
        answer = self.enqueue(count, mode)
        return {"jobs": count, "rate": answer["count"] / answer["seconds"]}

    def drain(self, workers: int, concurrency: int) -> dict[str, Any]:
        count = self.sized(self.variant.drain)
        self.reset(concurrency)
        self.enqueue(count, "bulk" if self.variant.bulk else "one")
        self.servers.settle(self.variant)
        probe = open_probe(self.servers, self.variant)
        try:
            with self.workers(workers, concurrency) as started:
                self._wait_for_starts(count, started)
                shown, seen = self._wait_for_store(probe, count)
                time.sleep(AFTERWARDS_SECONDS)
        finally:
            probe.close()
        return {"workers": workers, "concurrency": concurrency, **self._drained(count, shown, seen)}

    def _wait_for_starts(self, count: int, started: list[Worker]) -> None:
        seen, since = -1, time.monotonic()
        while (found := records.count(self.out)) < count:
            if found != seen:
                seen, since = found, time.monotonic()
            if time.monotonic() - since > STANDSTILL_SECONDS or any(worker.ended() for worker in started):
                return
            time.sleep(0.01)

    def _wait_for_store(self, probe: Probe, count: int) -> tuple[float | None, int]:
        """When the store showed all jobs as done, and what it showed last."""
        deadline = time.monotonic() + SHOWN_SECONDS
        while True:
            done = probe.done()
            now = time.monotonic()
            if done >= count:
                return now, done
            if now > deadline:
                return None, done
            time.sleep(0.01)

    def _drained(self, count: int, shown: float | None, seen: int) -> dict[str, Any]:
        starts = records.read(self.out)
        if not starts:
            raise Broken(f"no job ran; {self._why()}")
        verdict = records.judge(starts, range(count))
        times = [start.at for start in starts]
        first, last = min(times), max(times)
        found: dict[str, Any] = {"jobs": count, "lost": verdict.lost, "doubled": verdict.doubled}
        if shown is None:
            return {**found, "rate": None, "problem": f"the store showed {seen} of {count} as done"}
        end = max(shown, last) if verdict.doubled == 0 else shown
        return {**found, "rate": count / (end - first), "seconds": end - first, "shown_after": max(0.0, shown - last)}

    def latency(self) -> dict[str, Any]:
        concurrency = self.variant.responsive
        with self._warm(concurrency):
            began = self.call("latency", LATENCY_JOBS, concurrency=concurrency)["began"]
            expected = LATENCY_JOBS + WARM_JOBS
            wait_for(lambda: records.count(self.out) >= expected, 15.0)
            time.sleep(AFTERWARDS_SECONDS)
        starts = [start for start in records.read(self.out) if start.number < WARM_FROM]
        verdict = records.judge(starts, range(LATENCY_JOBS))
        found = records.latency(starts, began)
        if found is None:
            raise Broken(f"no job ran; {self._why()}")
        return {
            "concurrency": concurrency,
            "jobs": found.count,
            "p50": found.p50,
            "p99": found.p99,
            "most": found.most,
            "lost": verdict.lost,
            "doubled": verdict.doubled,
        }

    def idle(self, seconds: float) -> dict[str, Any]:
        concurrency = self.variant.responsive
        with self._warm(concurrency) as worker:
            time.sleep(REST_SECONDS)
            weight = weigh(worker)
            with self.servers.counting(self.variant) as counter:
                used, began = cpu_seconds(worker), time.monotonic()
                time.sleep(seconds)
                passed = time.monotonic() - began
                asked = counter.asked()
                cpu = cpu_seconds(worker) - used
        return {
            "concurrency": concurrency,
            "processes": weight.processes,
            "rss": weight.rss_mib,
            "pss": weight.pss_mib,
            "queries": None if asked is None else asked / passed,
            "cpu": cpu / passed * 100,
        }

    @contextmanager
    def _warm(self, concurrency: int) -> Iterator[Worker]:
        """A worker that has run a few jobs and then had a moment's rest."""
        self.reset(concurrency)
        with self.workers(1, concurrency) as [worker]:
            self.enqueue(WARM_JOBS, "one", WARM_FROM)
            if not wait_for(lambda: records.count(self.out) >= WARM_JOBS, START_SECONDS):
                raise Broken(f"the first jobs did not run; {self._why()}")
            time.sleep(AFTERWARDS_SECONDS)
            yield worker

    def _why(self) -> str:
        log = self._folder / "worker.log"
        return _last_line(log.read_text(errors="replace")) if log.exists() else "no log"


def _last_line(text: str) -> str:
    lines = [line.strip() for line in text.splitlines() if line.strip()]
    return (lines or ["no message"])[-1][:300]
