"""One history: everything that follows from a seed.

Workers, clients, an operator and strangers work on one store while faults happen; then the faults stop, time goes on,
everything must come to its end, and the judge looks at what was recorded and told.
"""

from __future__ import annotations

import gc
import traceback
from collections import Counter
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field
from functools import partial
from typing import Any

from holdfast.domain.manifest import TaskInfo
from holdfast.stores.ids import new_ids
from holdfast.stores.types import to_text
from holdfast.wiring.redis import StreamOptions
from tests.simulation import scope, seams, weather
from tests.simulation.clients import QUEUES, RETRY, SOURCE, TASKS, Clients
from tests.simulation.database import Faults, disk, open_simulated
from tests.simulation.fleet import Fleet
from tests.simulation.judge import Case, Judge
from tests.simulation.machine import Computer, Machine
from tests.simulation.programs import HELD_SOURCE, App, Town, short
from tests.simulation.redis_server import Redis
from tests.simulation.strangers import Strangers
from tests.simulation.watch import Violation, Watch
from tests.simulation.weather import LEASE_SECONDS
from tests.simulation.world import Host, Stalled, World

DRAIN_SECONDS = 20 * LEASE_SECONDS
SETTING_UP_SECONDS = SETTLING_SECONDS = 0.2
SCHEDULE, SCHEDULE_TASK = "tick", "ticked"
POISON_TASK = "poisoned"  # for workers alone: a stranger's control plane gives it no such job
# Each can be stored as JSON. Python decodes none of them.
UNDECODABLE = ("9" * 5_000, "[" * 990 + "]" * 990, "1e999", '"\\ud800"')


@dataclass(frozen=True)
class Result:
    seed: int
    violations: tuple[Violation, ...]
    trace: tuple[str, ...]
    steps: int
    seconds: float  # of virtual time
    faults: Counter[str] = field(default_factory=Counter)
    events: Counter[str] = field(default_factory=Counter)


class History:
    def __init__(self, seed: int, *, is_told: bool = False) -> None:
        self.seed = seed
        self.is_told = is_told
        self.world = world = World(seed)
        self.machine = Machine(world)
        random = world.random
        self.scope = scope.drawn(random)
        self.plan = weather.drawn(random, world.more, self.scope.horizon, self.scope.is_streamed)
        self.limit = random.choice((1, 2))
        streams = StreamOptions(url="redis://simulated", window=random.choice((2, 50)), takeover_seconds=LEASE_SECONDS)
        options = streams if self.scope.is_streamed else None
        self.disk = disk()
        self.redis = Redis(self.machine, self.plan)
        self.faults = Faults(world, self.plan, self.disk, self._crash)
        self.town = Town(self.machine, self._app(), self.scope.long, lambda: self.faults.is_calm)
        self.fleet = Fleet(self.machine, self.town, self.faults, self.scope, options)
        self.clients = Clients(self.machine, self.faults, self.scope, options)
        self.watch = Watch(world, self.disk, self.town, {SOURCE: self.limit}, int(self.scope.is_scheduled))
        self.strangers = Strangers(self.machine, self.faults, self.watch)
        self.faults.committed = self.watch.committed
        world.after_step = self.watch.look
        self.judge: Judge | None = None
        self.poisoned: list[str] = []

    def run(self) -> Result:
        self.disk.wipe()
        with seams.in_place(self.machine, self.redis, self.seed):
            try:
                self._run()
            except Stalled as stalled:
                self.watch.violated("liveness", str(stalled))
            finally:
                self.world.close()
        for where, error in self.world.errors:
            self.watch.violated("unexpected error", f"{where}: {''.join(traceback.format_exception(error))}")
        self.judge = Judge(
            Case(
                self.disk,
                self.town,
                self.fleet,
                self.clients,
                self.strangers,
                self.faults,
                schedule_task=SCHEDULE_TASK,
                poisoned=self.poisoned,
            )
        )
        return self._result(self.judge)

    def _result(self, judge: Judge) -> Result:
        world = self.world
        violations = (*self.watch.violations, *judge.violations())
        is_wanted = self.is_told or bool(violations)
        trace = tuple(f"{at:9.4f} {host:12} {what}" for at, host, what in world.trace) if is_wanted else ()
        return Result(self.seed, violations, trace, world.steps, world.now, world.faults, judge.events)

    def _run(self) -> None:
        world, horizon = self.world, self.scope.horizon
        self.faults.is_calm = True
        self._as_operator("set up", self._set_up)
        world.run(SETTING_UP_SECONDS)
        self.faults.is_calm = False
        self.fleet.start()
        self.clients.start()
        self.strangers.start(self.scope.strangers, horizon)
        self._plan_faults()
        world.run(max(horizon, self.plan.over_at))
        self.faults.is_calm = self.redis.is_calm = True
        world.say("faults are over")
        self._as_operator("tidy up", self._tidy_up)
        self.watch.is_draining = True
        world.run(world.now + DRAIN_SECONDS, self._is_over)
        world.run(world.now + SETTLING_SECONDS)

    def _is_over(self) -> bool:
        is_quiet = self.watch.is_drained and self.clients.open <= 0 and self.strangers.open <= 0
        return is_quiet and not self.town.live and self.fleet.is_at_rest

    def _app(self) -> App:
        tasks = [TaskInfo(name).to_json() for name in (*TASKS, SCHEDULE_TASK, POISON_TASK)]
        job = {"lease_seconds": LEASE_SECONDS, "retry": RETRY.to_json()}
        schedule = {"task": SCHEDULE_TASK, "every_seconds": 2.0, "misfire": "once", "job": job}
        # Otherwise only the operator has set the limits up, and workers start with less to announce.
        is_declared = self.world.random.random() < 0.2
        limits = {"max_concurrent": self.limit, "breaker_threshold": 3, "breaker_pause_seconds": 2.0}
        self.sources: dict[str, dict[str, Any]] = {SOURCE: limits, HELD_SOURCE: {"max_concurrent": 1}}
        return App(tasks, {SCHEDULE: schedule} if self.scope.is_scheduled else {}, self.sources if is_declared else {})

    # the operator, whom nothing befalls

    def _as_operator(self, what: str, act: Callable[[Computer], None]) -> None:
        computer = Computer(self.world, "operator")
        self.world.spawn(computer, what, lambda: act(computer))

    def _set_up(self, computer: Computer) -> None:
        """Limits are there before the first job: until somebody has set them, nothing is limited."""
        store = open_simulated(self.machine, self.faults, computer)
        for name, limits in self.sources.items():
            store.set_source(name, **limits)

    def _tidy_up(self, computer: Computer) -> None:
        store = open_simulated(self.machine, self.faults, computer)
        for queue in QUEUES:
            store.resume_queue(queue)
        while self.scope.is_scheduled:  # a worker may be the first to announce it only now
            for schedule in store.schedules():
                if schedule.paused_at is None:
                    store.pause_schedule(schedule.name)
            self.world.sleep(2.0)

    # faults

    def _plan_faults(self) -> None:
        random = self.world.random
        for _ in range(self.scope.blows):
            place = random.choice(sorted(self.fleet.workers))
            self._later(random.random(), partial(self.fleet.befall, place))
        if random.random() < 0.3:
            self._later(random.random(), self._flush_redis)
        if random.random() < 0.4:
            self._later(random.random(), self._deliver_twice)
        for _ in range(self.plan.poison):
            self._later(self.world.more.random(), self._insert_poison)

    def _later(self, part: float, act: Callable[[], None]) -> None:
        self.world.spawn(Computer(self.world, "chaos"), "chaos", act, part * self.scope.horizon)

    def _flush_redis(self) -> None:
        if self.redis.streams:
            self.world.fault(weather.REDIS_FLUSHED)
            self.redis.flush()

    def _deliver_twice(self) -> None:
        if self.redis.deliver_twice():
            self.world.fault(weather.REDIS_DUPLICATE)

    def _insert_poison(self) -> None:
        """By hand, as no client of ours can enqueue it."""
        [job_id], now, more = new_ids(1), to_text(self.machine.moment()), self.world.more
        self.world.fault(weather.POISON_PAYLOAD, short(job_id))
        self.poisoned.append(job_id)
        columns = "id, task, queue, payload, lease_seconds, run_after, created_at, updated_at"
        values = (job_id, POISON_TASK, more.choice(QUEUES), f'{{"n":{more.choice(UNDECODABLE)}}}', LEASE_SECONDS)
        self.disk.rows(f"INSERT INTO holdfast_jobs ({columns}) VALUES (?, ?, ?, ?, ?, ?, ?, ?)", *values, now, now, now)

    def _crash(self, host: Host) -> None:
        assert isinstance(host, Computer)
        if host.name in self.fleet.computers:
            self.fleet.crash(host)
        elif host.name.startswith("client"):
            self.clients.gone(host)
        elif host.name != "operator":
            self.world.kill(host)


def simulate(seed: int, *, is_told: bool = False) -> Result:
    """The trace is put into words where it is asked for, or where something went wrong."""
    return History(seed, is_told=is_told).run()


def spare_the_collector() -> None:
    """Strands are circles of objects: collected now and then, and not at every few allocations."""
    gc.freeze()
    gc.set_threshold(50_000, 20, 20)


@contextmanager
def collector_spared() -> Iterator[None]:
    """For a process that has other things to do, too."""
    before = gc.get_threshold()
    spare_the_collector()
    try:
        yield
    finally:
        gc.set_threshold(*before)  # what is frozen stays so: tests/conftest.py freezes all that was there before a test
