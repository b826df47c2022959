"""Faults of processes: killed, frozen, told to stop."""

from __future__ import annotations

import os
import random
import signal
import time
from collections.abc import Iterable
from contextlib import suppress

from holdfast.runners.descendants import descendants
from holdfast.torture.crew import CLIENT, PLANE, RQ, WORKERS, Member
from holdfast.torture.faults.kind import Struck
from holdfast.torture.stage import Stage

END_SECONDS = 15.0


def worker_killed(stage: Stage, chance: random.Random) -> Struck:
    member = chance.choice(stage.crew.of(*WORKERS))
    held = tuple(stage.held(member))
    below = descendants(member.pid) if member.is_running else []
    hit = member.send(signal.SIGKILL, "killed")
    if member.door == RQ:
        # A work-horse outlives its worker, and ends its job under its lease: that is no loss, and proves nothing.
        _signal(below, signal.SIGKILL)
    return Struck(member.name, f"{len(held)} jobs held", (member.door,), held, hits=int(hit))


def runner_killed(stage: Stage, chance: random.Random) -> Struck:
    """A runner, or RQ's work-horse: what a job's own crash looks like from outside."""
    found = [
        (member, pid) for member in stage.crew.of(*WORKERS) if member.is_running for pid in descendants(member.pid)
    ]
    if not found:
        return Struck("nobody", hits=0)
    member, pid = chance.choice(found)
    held = tuple(stage.held(member))
    _signal([pid], signal.SIGKILL)
    return Struck(f"a runner of {member.name}", doors=(member.door,), held=held)


def worker_frozen(stage: Stage, chance: random.Random) -> Struck:
    """The supervisor alone, past its leases: it must kill its runners before it believes anything else."""
    member = chance.choice(stage.crew.of(*WORKERS))
    return _frozen(stage, chance, member, [member.pid] if member.is_running else [])


def tree_frozen(stage: Stage, chance: random.Random) -> Struck:
    """With everything below it: the zombie that wakes up and reports."""
    member = chance.choice(stage.crew.of(*WORKERS))
    return _frozen(stage, chance, member, [member.pid, *descendants(member.pid)] if member.is_running else [])


def plane_frozen(stage: Stage, chance: random.Random) -> Struck:
    member = chance.choice(stage.crew.of(PLANE))
    return _frozen(stage, chance, member, [member.pid] if member.is_running else [])


def plane_killed(stage: Stage, chance: random.Random) -> Struck:
    member = chance.choice(stage.crew.of(PLANE))
    hit = member.send(signal.SIGKILL, "killed")
    return Struck(member.name, doors=("http",), hits=int(hit))


def client_killed(stage: Stage, chance: random.Random) -> Struck:
    """In the middle of an enqueue, or with a claim whose answer nobody reads."""
    member = chance.choice(stage.crew.of(CLIENT))
    held = tuple(stage.held(member))
    hit = member.send(signal.SIGKILL, "killed")
    return Struck(member.name, held=held, hits=int(hit))


def term_storm(stage: Stage, chance: random.Random) -> Struck:
    """Every worker and control plane is told to stop, some of them again and again."""
    members = stage.crew.of(*WORKERS, PLANE)
    hits = 0
    for member in members:
        for _ in range(chance.choice((1, 1, 2, 3))):
            hits += member.send(signal.SIGTERM, "terminated")
            stage.rest(chance.uniform(0.0, 0.1))
    return Struck("all workers and control planes", f"{hits} signals", _doors(members), hits=hits)


def rolling_deploy(stage: Stage, chance: random.Random) -> Struck:
    """One after the other: told to stop, waited for, started again by whoever tends the crew."""
    members = stage.crew.of(*WORKERS, PLANE)
    chance.shuffle(members)
    hits = 0
    for member in members:
        process = member.popen
        if process is None or not member.send(signal.SIGTERM, "deployed"):
            continue
        hits += 1
        until = time.monotonic() + END_SECONDS
        while process.poll() is None and time.monotonic() < until and not stage.stop.is_set():
            stage.rest(0.05)
    return Struck("all workers and control planes, one by one", f"{hits} of them", _doors(members), hits=hits)


def _frozen(stage: Stage, chance: random.Random, member: Member, pids: list[int]) -> Struck:
    held = tuple(stage.held(member))
    seconds = chance.uniform(1.3, 2.5) * stage.lease_seconds
    _signal(pids, signal.SIGSTOP)
    stage.rest(seconds)
    _signal(pids, signal.SIGCONT)
    doors = ("http",) if member.door == PLANE else (member.door,)
    return Struck(member.name, f"{seconds:.1f} s, {len(held)} jobs held", doors, held, hits=int(bool(pids)))


def _signal(pids: Iterable[int], number: signal.Signals) -> None:
    for pid in pids:
        with suppress(ProcessLookupError):
            os.kill(pid, number)


def _doors(members: Iterable[Member]) -> tuple[str, ...]:
    return tuple(dict.fromkeys(member.door for member in members if member.door in WORKERS))
