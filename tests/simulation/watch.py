"""What must hold at every moment, looked at after every commit and every step. It reads past the stores.

A runner may only run on without its lease while its supervisor is stopped: nobody can kill anything then. Everybody
else has killed it before the lease's expiry by the store's clock.
"""

from __future__ import annotations

from dataclasses import dataclass
from datetime import datetime

from tests.simulation.database import Disk
from tests.simulation.machine import BEGINNING
from tests.simulation.programs import Run, Town, short
from tests.simulation.world import Host, World

JUST_RESUMED_SECONDS = 0.1

_RUNNING = "SELECT id, attempt, lease_expires_at, source FROM holdfast_jobs WHERE state = 'running'"
_TWICE = (
    "SELECT task, unique_key, count(*) FROM holdfast_jobs WHERE unique_key IS NOT NULL"
    " AND state IN ('pending', 'running', 'retryable') GROUP BY task, unique_key HAVING count(*) > 1"
)
_REAPED = (
    "SELECT 1 FROM holdfast_events WHERE job_id = ? AND attempt = ?"
    " AND (event = 'lease_lost' OR detail ->> '$.by' = 'reaper')"
)
_LEFT = "SELECT 1 FROM holdfast_jobs WHERE state IN ('pending', 'running', 'retryable') LIMIT 1"
_PAUSED = "SELECT count(*) FROM holdfast_schedules WHERE paused_at IS NOT NULL"


@dataclass(frozen=True)
class Violation:
    rule: str
    detail: str

    def __str__(self) -> str:
        return f"{self.rule}: {self.detail}"


class Watch:
    def __init__(self, world: World, disk: Disk, town: Town, limits: dict[str, int], schedules: int) -> None:
        self._world = world
        self._disk = disk
        self._town = town
        self._limits = limits
        self._schedules = schedules
        self._expiries: dict[str, float] = {}
        self._told: set[tuple[str, str]] = set()
        self.violations: list[Violation] = []
        self.is_draining = False
        self.is_drained = False

    def violated(self, rule: str, detail: str) -> None:
        if (rule, detail) not in self._told:
            self._told.add((rule, detail))
            self._world.say(f"VIOLATION {rule}: {detail}")
            self.violations.append(Violation(rule, detail))

    def committed(self, host: Host) -> None:
        rows = self._disk.rows(_RUNNING)
        before, self._expiries = self._expiries, {f"{row[0]}.{row[1]}": _seconds(row[2]) for row in rows}
        for attempt_id in before.keys() - self._expiries.keys():
            if before[attempt_id] > self._world.now and self._disk.rows(_REAPED, *attempt_id.split(".")):
                self.violated("a live lease was reaped", short(attempt_id))
        for source, most in self._limits.items():
            inside = sum(1 for row in rows if row[3] == source)
            if inside > most:
                self.violated("source concurrency", f"{inside} jobs of {source} run, and {most} may")
        if host.name.startswith("client"):  # nobody else takes keys
            for task, key, count in self._disk.rows(_TWICE):
                self.violated("unique key", f"{count} active jobs of {task} have the key {key}")
        if self.is_draining:
            self.is_drained = not self._disk.rows(_LEFT) and self._disk.rows(_PAUSED)[0][0] == self._schedules
        self.look()

    def is_over(self, job_id: str, attempt: int) -> bool:
        return f"{job_id}.{attempt}" not in self._expiries

    def look(self) -> None:
        if not self._town.live:
            return
        inside = 0
        for run in self._town.live.values():
            if self._cannot_be_helped(run):
                continue
            inside += run.held is not None and run.waits is None
            expiry = self._expiries.get(run.id)
            if expiry is None:
                self.violated("a run without its lease", f"{short(run.id)} runs, and the store knows no such lease")
            elif self._world.now > expiry:
                self.violated("the fencing deadline", f"{short(run.id)} still runs after its lease has expired")
        if inside > 1:
            self.violated("held source concurrency", f"{inside} jobs are inside, and 1 may be")

    def _cannot_be_helped(self, run: Run) -> bool:
        supervisor = run.runner.parent
        return not supervisor.alive or supervisor.stopped_until + JUST_RESUMED_SECONDS > self._world.now


def _seconds(text: str) -> float:
    return (datetime.fromisoformat(text) - BEGINNING).total_seconds()
