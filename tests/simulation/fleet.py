"""The workers of a history: the real `Worker` with everything around it, started again whenever it has ended."""

from __future__ import annotations

import signal
from collections.abc import Callable

from holdfast.domain.events import Event, Events, RunEnded, RunMoved, WorkerMoved
from holdfast.domain.timing import Timing
from holdfast.maintenance.chores import Chore
from holdfast.ports import Store
from holdfast.stores.sql_store import SqlStore
from holdfast.wiring.redis import SWEEPING, StreamOptions
from holdfast.worker.options import WorkerOptions
from holdfast.worker.start import Worker
from holdfast.worker.supervisor import Supervisor
from tests.simulation import weather
from tests.simulation.database import Faults, open_simulated
from tests.simulation.machine import Computer, Machine
from tests.simulation.programs import Town
from tests.simulation.scope import Scope
from tests.simulation.weather import LEASE_SECONDS

# Reaping less often than by default: it is a third of all that an idle worker does.
TIMING = Timing(LEASE_SECONDS, LEASE_SECONDS / 3, LEASE_SECONDS / 6, LEASE_SECONDS / 3)
POLL_SECONDS = 2.0
GRACE_SECONDS = 1.5
TERM_GRACE_SECONDS = 0.5
RESTART_SECONDS = 2.0


class SimulatedWorker(Worker):
    """What differs is where its stores come from, and that it neither loads nor listens to anything."""

    def __init__(
        self, options: WorkerOptions, events: Events, open_store: Callable[[], SqlStore], all_chores: bool
    ) -> None:
        self._open_simulated = open_store
        self._all_chores = all_chores
        super().__init__(options, events)

    def _open(self, timeout_seconds: float) -> Store:  # noqa: ARG002
        return self._with_streams(self._answering())

    def _open_for_upkeep(self, timeout_seconds: float) -> Store:  # noqa: ARG002
        return self._answering()

    def _answering(self) -> SqlStore:
        """As the check of the schema does, it asks once."""
        store = self._open_simulated()
        with store.database.reading():
            return store

    def _load_the_store(self) -> None:
        return

    def _connected(self) -> None:
        self._begin_upkeep()

    def _chores(self, store: Store) -> list[Chore]:
        """In most histories only what moves messages: the rest changes no job before its retention is over."""
        chores = super()._chores(store)
        return chores if self._all_chores else [chore for chore in chores if chore.name == SWEEPING]


class Fleet:
    def __init__(self, machine: Machine, town: Town, faults: Faults, scope: Scope, redis: StreamOptions | None) -> None:
        self._machine = machine
        self._world = machine.world
        self._town = town
        self._faults = faults
        self._scope = scope
        self._redis = redis
        self._incarnations = 0
        self.workers: dict[str, Computer] = {}  # the living one of each place
        self.computers: dict[str, Computer] = {}  # everybody who ever was, by name
        self.supervisors: dict[str, Supervisor] = {}
        self.answers: list[RunEnded] = []
        self.ended: set[str] = set()  # killed, or gone before their leases were given back

    def start(self) -> None:
        for number in range(self._scope.workers):
            self._begin(f"w{number}", after=0.0)

    def _begin(self, place: str, after: float) -> None:
        self._incarnations += 1
        computer = Computer(self._world, f"{place}.{self._incarnations}")
        self.workers[place] = self.computers[computer.name] = computer
        self._world.spawn(computer, "main", lambda: self._main(computer), after)

    def _main(self, computer: Computer) -> None:
        worker = SimulatedWorker(
            self._options(computer.name),
            Events(self._heard),
            lambda: open_simulated(self._machine, self._faults, computer),
            self._scope.all_chores,
        )
        self.supervisors[computer.name] = worker.supervisor
        code = worker.run()
        self._world.say(f"exits with {code}")
        if code != 0:
            self.ended.add(computer.name)
        self.replace(computer, self._world.random.random() * RESTART_SECONDS)

    def _options(self, worker_id: str) -> WorkerOptions:
        return WorkerOptions(
            app="simulated:app",
            database_url="sqlite://",
            worker_id=worker_id,
            processes=self._scope.processes,
            slots=self._scope.slots,
            notify=False,
            timing=TIMING,
            poll_seconds=POLL_SECONDS,
            grace_seconds=GRACE_SECONDS,
            term_grace_seconds=TERM_GRACE_SECONDS,
            redis=self._redis,
        )

    def _heard(self, event: Event) -> None:
        if isinstance(event, RunEnded):
            self.answers.append(event)
        if not isinstance(event, WorkerMoved | RunMoved):
            self._world.say(event)

    @property
    def is_at_rest(self) -> bool:
        """Nobody is stopped, and nobody holds a lease or waits for an answer to a report."""
        if any(computer.stopped_until > self._world.now for computer in self.workers.values()):
            return False
        return not any(len(supervisor.book) for supervisor in self.living.values())

    @property
    def living(self) -> dict[str, Supervisor]:
        return {name: supervisor for name, supervisor in self.supervisors.items() if self.computers[name].alive}

    # faults

    def replace(self, computer: Computer, after: float) -> None:
        """The process is over, whatever it was doing; its runners die with it, and another one starts later."""
        place = computer.name.split(".")[0]
        self._begin(place, after)
        computer.alive = False
        self._town.orphaned(computer)
        self._world.kill(computer)

    def crash(self, computer: Computer) -> None:
        self.ended.add(computer.name)
        self.replace(computer, self._world.random.random() * RESTART_SECONDS)

    def befall(self, place: str) -> None:
        """One of the things that happen to processes happens to this one."""
        computer, random = self.workers[place], self._world.random
        if not computer.handlers:  # it is just starting
            return
        kind = random.choice(
            (
                weather.CRASHED,
                weather.STOPPED,
                weather.PAUSED,
                weather.TERMINATED,
                weather.HURRIED,
                weather.RUNNER_KILLED,
            )
        )
        runners = [process for process in self._town.processes.values() if process.parent is computer]
        if kind == weather.RUNNER_KILLED and not runners:
            return
        self._world.fault(kind, host=computer)
        match kind:
            case weather.CRASHED:
                self.crash(computer)
            case weather.STOPPED:
                self._world.stop(computer, random.uniform(0.8, 2.5) * LEASE_SECONDS)
            case weather.PAUSED:
                self._world.stop(computer, random.uniform(0.0, 0.3) * LEASE_SECONDS)
            case weather.TERMINATED:
                computer.signal(signal.SIGTERM)
            case weather.HURRIED:
                computer.signal(signal.SIGTERM)
                computer.signal(signal.SIGTERM)
            case _:
                random.choice(runners).die(-signal.SIGKILL, "the kernel")
