"""A run from its first process to its verdict.

1. Everybody is started, and a probe must get through every door.
2. Faults, group after group, until the time is over.
3. Faults end, clients are dismissed, schedules are paused; whatever is left must come to its end.
4. Everybody is dismissed, and the checker reads the ledger and everybody's notes.
"""

from __future__ import annotations

import platform
import random
import threading
import time
from collections.abc import Callable, Iterator, Sequence
from concurrent.futures import Future, ThreadPoolExecutor, wait
from contextlib import contextmanager, suppress
from dataclasses import dataclass, replace
from datetime import UTC, datetime
from functools import partial
from importlib.metadata import version

from sqlalchemy import text

from holdfast.domain.errors import HoldfastError
from holdfast.domain.lifecycle import ACTIVE
from holdfast.torture import tasks
from holdfast.torture.checker import Expectations, LimitedSource, Ticking, judge
from holdfast.torture.crew import CLIENT, WORKERS
from holdfast.torture.faults import Kind, Struck
from holdfast.torture.notes import anchor
from holdfast.torture.plan import groups
from holdfast.torture.results import Result, Strike
from holdfast.torture.setting import Setting
from holdfast.torture.stage import Stage

START_SECONDS = 90.0
# From the end of a fault until its jobs have moved on and every door that it shut is open: a lease and the grace after
# an outage, `error_wait` and a connect, a process that starts, and for RQ the sweep, every 5 s.
DOOR_SECONDS = 30.0
TOGETHER = 3.0  # times that, while other faults come
LONGEST_RECOVERY_SECONDS = 150.0  # after that nobody waits any longer
AT_ONCE = 16
DRAIN_SECONDS = 180.0
CATCH_UP_SECONDS = 30.0
LOOK_SECONDS = 0.2
SCHEDULES = {tasks.TICKING: "tough.tick", tasks.GATHERED: "tough.gathered"}
TEND_SECONDS = 0.1
Told = Callable[[str], None]


class NotReady(HoldfastError):
    """A door did not open at the start: there is nothing to torture yet."""


@dataclass(frozen=True, slots=True, kw_only=True)
class RunOptions:
    seed: int
    seconds: float
    kinds: Sequence[Kind]
    lease_seconds: float
    command: str
    patience: float = 1.0  # times what a recovery may take


@dataclass(frozen=True, slots=True)
class Done:
    """A fault that is over; what it hit may not be well yet."""

    kind: str
    struck: Struck
    at: float
    until: float


class Run:
    def __init__(self, setting: Setting, options: RunOptions, told: Told) -> None:
        self._setting = setting
        self._stage: Stage = setting.stage
        self._options = options
        self._told = told
        self._born = setting.born
        self._strikes: list[Strike] = []
        self._misfires: dict[str, str] = {}
        self._ticked_until: float | None = None
        self._lock = threading.Lock()

    def run(self) -> Result | None:
        """None when somebody wanted it to end before: then there is no verdict."""
        began_at, stage = time.time(), self._stage
        with self._tended():
            self._told("starting everybody")
            self._open_doors()
            left_out = {kind.name: why for kind in self._options.kinds if (why := kind.cannot(stage)) is not None}
            usable = [kind for kind in self._options.kinds if kind.name not in left_out]
            seconds = self._strike_until_over(usable)
            if stage.stop.is_set():
                return None
            self._told("draining")
            stage.crew.dismiss(stage.crew.of(CLIENT))
            drained = self._drain()
            if stage.stop.is_set():
                return None
            stage.crew.dismiss(stage.crew.all())
        self._told("reading what everybody was told")
        return self._judged(began_at, seconds, drained, left_out)

    @contextmanager
    def _tended(self) -> Iterator[None]:
        """Whoever starts a process here must outlive it: the kernel ends it with that thread."""
        over = threading.Event()

        def tend() -> None:
            while not over.wait(TEND_SECONDS):
                self._stage.crew.tend()
            self._ended.wait()

        self._ended = threading.Event()
        thread = threading.Thread(target=tend, name="torture-tending", daemon=True)
        thread.start()
        try:
            yield
        finally:
            over.set()
            self._stage.crew.close()
            self._ended.set()
            thread.join()

    def _open_doors(self) -> None:
        doors = self._doors()
        with ThreadPoolExecutor(len(doors)) as pool:
            opened = list(pool.map(lambda door: self._stage.probe(door, START_SECONDS), doors))
        for door, is_open in zip(doors, opened, strict=True):
            if not is_open and not self._stage.stop.is_set():
                said = "\n".join(f"{member.name}: {member.said()}" for member in self._stage.crew.of(door))
                raise NotReady(f"No job got through the door {door} in {START_SECONDS:.0f} s.\n{said}")

    def _doors(self) -> tuple[str, ...]:
        return tuple(dict.fromkeys(member.door for member in self._stage.crew.of(*WORKERS)))

    # faults

    def _strike_until_over(self, kinds: Sequence[Kind]) -> float:
        began, by_name = time.monotonic(), {kind.name: kind for kind in kinds}
        until = began + self._options.seconds
        with ThreadPoolExecutor(AT_ONCE, "torture-fault") as strikers, ThreadPoolExecutor(AT_ONCE) as watchers:
            watched: list[Future[None]] = []
            for number, group in enumerate(groups(self._options.seed, sorted(by_name))):
                self._stage.stop.wait(min(group.rest_seconds, max(0.0, until - time.monotonic())))
                if time.monotonic() >= until or self._stage.stop.is_set():
                    break
                self._told(f"{time.monotonic() - began:.0f} s, now {' and '.join(group.kinds)}")
                strike = partial(self._strike, number)
                struck = list(strikers.map(strike, [by_name[name] for name in group.kinds]))
                watches = [watchers.submit(self._watch, one) for one in struck if one is not None]
                watched += watches
                if group.is_patient:
                    wait(watches)
        for one in watched:
            one.result()  # a watch that went wrong must not pass for a fault that was never there
        if not kinds:
            self._stage.stop.wait(max(0.0, until - time.monotonic()))
        return time.monotonic() - began

    def _strike(self, number: int, kind: Kind) -> Done | None:
        chance = random.Random(f"{self._options.seed}-{number}-{kind.name}")
        at = time.monotonic()
        try:
            struck = kind.strike(self._stage, chance)
        except Exception as error:  # half an hour of evidence must not be lost for it; the report says so
            self._misfires[kind.name] = f"went wrong itself: {error!r}"
            return None
        return Done(kind.name, struck, at, time.monotonic()) if struck.hits else None

    def _watch(self, done: Done) -> None:
        """Until everything that it hit is well again."""
        struck, stage = done.struck, self._stage
        moved = stage.wait_moved(struck.held, LONGEST_RECOVERY_SECONDS)
        moved_at = time.monotonic()
        with ThreadPoolExecutor(max(1, len(struck.doors))) as pool:
            is_open = pool.map(lambda door: stage.probe(door, LONGEST_RECOVERY_SECONDS), struck.doors)
            closed = [door for door, found in zip(struck.doors, is_open, strict=True) if not found]
        held = [f"{len(struck.held)} jobs moved on after {moved_at - done.at:.1f} s"] if struck.held else []
        what = [*held, *([f"open: {', '.join(struck.doors)}"] if struck.doors else [])]
        if not moved or closed:
            what = [f"not well: {', '.join(closed) or 'jobs that it held'}"]
        has_what = bool(struck.held or struck.doors)
        strike = Strike(
            kind=done.kind,
            target=struck.target,
            at=done.at - self._born,
            until=done.until - self._born,
            detail=struck.detail,
            recovered_seconds=time.monotonic() - done.until if has_what and not stage.stop.is_set() else None,
            bound_seconds=DOOR_SECONDS * self._options.patience if has_what else None,
            recovered_what="; ".join(what),
        )
        with self._lock:
            self._strikes.append(strike)

    # the end

    def _drain(self) -> float | None:
        store, began = self._stage.store, time.monotonic()
        self._ticked_until = self._caught_up()
        for name in SCHEDULES:
            self._insist(partial(store.pause_schedule, name))
        while time.monotonic() - began < DRAIN_SECONDS and not self._stage.stop.is_set():
            with suppress(HoldfastError):
                counts = store.counts()
                if not any(counts.get(state) for state in ACTIVE):
                    return time.monotonic() - began
            time.sleep(LOOK_SECONDS)
        return None

    def _caught_up(self) -> float:
        """A moment up to which every schedule ought to have fired, since it was given the time to: the present one."""
        now, until = datetime.now(UTC), time.monotonic() + CATCH_UP_SECONDS
        while time.monotonic() < until and not self._stage.stop.is_set():
            with suppress(HoldfastError):
                planned = [self._stage.store.schedule(name).next_at for name in SCHEDULES]
                if all(found is not None and found > now for found in planned):
                    break
            time.sleep(LOOK_SECONDS)
        return now.timestamp()

    def _insist(self, act: Callable[[], object]) -> None:
        until = time.monotonic() + DOOR_SECONDS
        while True:
            try:
                act()
                return
            except HoldfastError:
                if time.monotonic() > until:
                    raise
                time.sleep(LOOK_SECONDS)

    def _judged(self, began_at: float, seconds: float, drained: float | None, left_out: dict[str, str]) -> Result:
        stage, options = self._stage, self._options
        expected = Expectations(
            began_at=began_at,
            ended_at=time.time(),
            struck_from=anchor() + self._born,
            calm=frozenset(tasks.CALM),
            poison=dict.fromkeys(tasks.POISON, tasks.MAX_CRASHES),
            undecodable=frozenset({tasks.UNDECODABLE}),
            unnoted=frozenset(tasks.UNNOTED),
            schedules=tuple(
                Ticking(name, task, tasks.EVERY_SECONDS, self._ticked_until) for name, task in SCHEDULES.items()
            ),
            sources=(
                LimitedSource(tasks.METERED, rate_limit_per_minute=tasks.METERED_PER_MINUTE),
                LimitedSource(tasks.NARROW, max_concurrent=tasks.NARROW_AT_ONCE),
            ),
        )
        strikes = bounded(sorted(self._strikes, key=lambda strike: strike.at))
        judged = judge(stage.ground.url, self._setting.notes, expected, strikes)
        missed = self._kinds_missed(left_out, strikes)
        return Result(
            seed=options.seed,
            command=options.command,
            store=stage.ground.masked,
            dialect=stage.store.database.dialect,
            versions=self._versions(),
            lease_seconds=options.lease_seconds,
            began_at=datetime.fromtimestamp(began_at, UTC).isoformat(timespec="seconds"),
            seconds=round(seconds, 1),
            drained_seconds=None if drained is None else round(drained, 1),
            load=judged.load,
            strikes=strikes,
            left_out={**left_out, **missed, **self._misfires},
            broken=judged.broken,
            rules_checked=judged.rules_checked,
            timeline=judged.timeline,
            lives=stage.crew.lives(),
        )

    def _kinds_missed(self, left_out: dict[str, str], strikes: Sequence[Strike]) -> dict[str, str]:
        struck = {strike.kind for strike in strikes}
        names = [kind.name for kind in self._options.kinds if kind.name not in left_out]
        return {name: "its turn did not come: give it more time" for name in names if name not in struck}

    def _versions(self) -> dict[str, str]:
        asked = "SHOW server_version" if self._stage.ground.is_postgres else "SELECT sqlite_version()"
        with self._stage.store.database.engine.connect() as connection:
            database = str(connection.execute(text(asked)).scalar_one())
        found = {"holdfast": version("holdfast"), "python": platform.python_version(), "database": database}
        if self._setting.redis_version:
            found["redis"] = self._setting.redis_version
        return found


def bounded(strikes: Sequence[Strike]) -> tuple[Strike, ...]:
    """While other faults come, what one of them hit may be hit again: it has to be well after all of them."""
    return tuple(
        replace(strike, bound_seconds=TOGETHER * strike.bound_seconds)
        if strike.bound_seconds is not None and any(_overlap(strike, other) for other in strikes if other is not strike)
        else strike
        for strike in strikes
    )


def _overlap(one: Strike, other: Strike) -> bool:
    return one.at < _well_at(other) and other.at < _well_at(one)


def _well_at(strike: Strike) -> float:
    return strike.until + (strike.recovered_seconds or 0.0)
