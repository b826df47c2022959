"""One seeded scheduler: strands instead of threads, hosts instead of processes, a clock that moves when nobody can run.

A strand is a thread of simulated time: a greenlet that runs until it waits (for a queue, a socket, a store's answer, a
moment) and is resumed by the scheduler. Only one runs at a time, and it is never interrupted anywhere else, so the
order in which strands are resumed is the whole history; it comes from latencies, which all come from the seed.

A host is a process: it can be stopped for a while (its strands are not resumed), and it can be killed (they never are
again). What a strand does when it is killed inside a `finally` reaches nobody: whoever is dead touches no store, socket
or process.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable
from dataclasses import dataclass, field
from heapq import heappop, heappush
from importlib import import_module
from itertools import count
from random import Random
from typing import Any

# It carries no types, and comes with SQLAlchemy's asyncio extra.
_greenlets: Any = import_module("greenlet")

WAKING_SECONDS = 0.002
STALLED_STEPS = 20_000  # without a history's end: something spins


class Killed(BaseException):
    """Raised in the strands of a host that dies, wherever they wait."""


class Stalled(Exception):
    """A history that does not come to its end."""


@dataclass(eq=False)
class Host:
    """A process, as far as the scheduler knows it."""

    name: str
    alive: bool = True
    stopped_until: float = 0.0  # as by SIGSTOP
    was_stopped: list[tuple[float, float]] = field(default_factory=list)
    strands: list[Strand] = field(default_factory=list)


class Strand:
    def __init__(self, world: World, host: Host, name: str, act: Callable[[], object]) -> None:
        self.world = world
        self.host = host
        self.name = name
        self.turn = 0  # counts its waits: what would wake it from an earlier one is void
        self.is_over = False
        self.greenlet: Any = _greenlets.greenlet(lambda: self._run(act), world.hub)

    def _run(self, act: Callable[[], object]) -> None:
        try:
            act()
        except Killed:
            pass
        except BaseException as error:
            if self.host.alive:
                self.world.died_of(self, error)
        finally:
            self.is_over = True


class World:
    def __init__(self, seed: int) -> None:
        self.random = Random(seed)
        self.more = Random(f"more-{seed}")  # for what was added later: see weather.drawn
        self.now = 0.0
        self.steps = 0
        self.most_steps = STALLED_STEPS
        self.current: Strand | None = None
        self.hub: Any = _greenlets.getcurrent()
        self.in_transaction = False
        self.faults: Counter[str] = Counter()
        self.trace: list[tuple[float, str, object]] = []
        self.errors: list[tuple[str, BaseException]] = []
        self.after_step: Callable[[], None] = lambda: None
        self._numbers = count()
        self._agenda: list[tuple[float, int, Strand, int]] = []
        self._hosts: dict[int, Host] = {}

    # saying what happens

    def say(self, what: object, host: Host | None = None) -> None:
        """It is put into words when somebody wants to read it."""
        speaker = host or (self.current.host if self.current is not None else None)
        self.trace.append((self.now, "" if speaker is None else speaker.name, what))

    def fault(self, kind: str, about: str = "", host: Host | None = None) -> None:
        self.faults[kind] += 1
        self.say(f"FAULT {kind} {about}".rstrip(), host)

    def died_of(self, strand: Strand, error: BaseException) -> None:
        self.errors.append((f"{strand.host.name}/{strand.name}", error))
        self.say(f"{strand.name} died of {error!r}", strand.host)

    # strands

    def spawn(self, host: Host, name: str, act: Callable[[], object], after: float = 0.0) -> Strand:
        strand = Strand(self, host, name, act)
        host.strands.append(strand)
        self._hosts[id(host)] = host
        self._plan(strand, self.now + after + self.latency())
        return strand

    def latency(self) -> float:
        return self.random.random() * WAKING_SECONDS

    def wait(self, until: float | None) -> None:
        """Until that moment, or until somebody wakes it; for ever without a moment."""
        strand = self.current
        assert strand is not None, "only strands wait"
        if not strand.host.alive:
            raise Killed
        assert not self.in_transaction, "a transaction is one step"
        if until is not None:
            self._plan(strand, max(until, self.now))
        self.current = None
        self.hub.switch()
        if not strand.host.alive:
            raise Killed

    def sleep(self, seconds: float) -> None:
        if not self.in_transaction:
            self.wait(self.now + seconds + self.latency())

    def wake(self, strand: Strand | None) -> None:
        if strand is not None and not strand.is_over:
            self._plan(strand, self.now + self.latency())

    def _plan(self, strand: Strand, at: float) -> None:
        heappush(self._agenda, (at, next(self._numbers), strand, strand.turn))

    # hosts

    def stop(self, host: Host, seconds: float) -> None:
        host.stopped_until = max(host.stopped_until, self.now + seconds)
        host.was_stopped.append((self.now, host.stopped_until))

    def kill(self, host: Host) -> None:
        """At once: whatever its strands wait for, they get nothing more. A strand that kills its own host goes last."""
        host.alive = False
        own = self.current
        for strand in host.strands:
            if strand is not own and not strand.is_over:
                self._end(strand, own)
        host.strands.clear()
        if own is not None and own.host is host:
            raise Killed

    def _end(self, strand: Strand, own: Strand | None) -> None:
        strand.turn += 1
        if not strand.greenlet:  # it never ran
            strand.is_over = True
            return
        self.current = strand
        strand.greenlet.parent = _greenlets.getcurrent()
        strand.greenlet.throw(Killed)
        self.current = own

    # running

    def run(self, until: float, is_done: Callable[[], bool] = lambda: False) -> None:
        """Step after step, until that moment or until it is done."""
        while self._agenda and self._agenda[0][0] <= until and not is_done():
            self.step()
        if not self._agenda or self._agenda[0][0] > until:
            self.now = max(self.now, until) if not is_done() else self.now

    def step(self) -> None:
        at, _number, strand, turn = heappop(self._agenda)
        if turn != strand.turn or strand.is_over or not strand.host.alive:
            return
        if strand.host.stopped_until > at:
            self._plan(strand, strand.host.stopped_until + self.latency())
            return
        self.now = max(self.now, at)
        self.steps += 1
        if self.steps > self.most_steps:
            raise Stalled(f"{self.steps:,} steps, and no end")
        strand.turn += 1
        self.current = strand
        strand.greenlet.switch()
        self.current = None
        self.after_step()

    def close(self) -> None:
        """Nothing of it is left behind: a strand that is collected later would run its `finally` then, and one that
        waits for ever keeps all that it knows."""
        self.current = None
        for host in self._hosts.values():
            host.alive = False
        for host in self._hosts.values():
            self.kill(host)
        self._hosts.clear()
        self._agenda.clear()
