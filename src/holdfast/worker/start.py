"""Put a worker together and run it: stores, wake-ups, health, logs. Everything the command line needs to know."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, field
from pathlib import Path

from holdfast.domain.events import Event, Events, WorkerMoved
from holdfast.domain.manifest import Kind
from holdfast.domain.timing import LONGEST_TIMEOUT_SECONDS
from holdfast.domain.worker_states import WorkerState
from holdfast.observe.health import Health
from holdfast.ports import Store
from holdfast.settings import mask_url
from holdfast.transports.sqlite_changes import ChangeCheck
from holdfast.wiring import open_store, open_wake_up
from holdfast.worker import sd_notify
from holdfast.worker.options import WorkerOptions
from holdfast.worker.part import NEVER
from holdfast.worker.reload import Reload
from holdfast.worker.stores import CONNECTIONS, LazyStore
from holdfast.worker.supervisor import Supervisor
from holdfast.worker.wake_ups import FileChanges, ListenerStatus

# The loop never sleeps for more than a second. One that stands still for so long should be restarted.
UNWELL_SECONDS = 30.0


@dataclass
class Worker:
    """A worker with everything around it. `database_url` may come from the app, which only the runners can read."""

    options: WorkerOptions
    events: Events
    told: Callable[[str], None] = lambda _line: None
    supervisor: Supervisor = field(init=False)

    def __post_init__(self) -> None:
        self._control = LazyStore(lambda: self._open(self.supervisor.timing().timeout))
        # A claim that takes long costs nobody a lease: it may take as long as with the longest one.
        self._claims = LazyStore(lambda: self._open(LONGEST_TIMEOUT_SECONDS))
        self.supervisor = Supervisor(self.options, self._control, self._claims, self.events)
        self.events.subscribe(self._watch)
        self._close_wake_up: Callable[[], None] = lambda: None
        self._seen_ready = False

    def run(self) -> int:
        parts = self.supervisor.parts
        if self.options.reload:
            parts.append(Reload(Path.cwd(), self.supervisor.pool.renew))
        interval = sd_notify.watchdog_interval()
        if interval is not None:
            parts.append(_Watchdog(interval))
        try:
            return self.supervisor.run()
        finally:
            self._close_wake_up()
            self._control.close()
            self._claims.close()

    def health(self) -> Health:
        """Asked by another thread: it only reads."""
        supervisor = self.supervisor
        state = supervisor.cycle.state
        stopping = state in (WorkerState.STARTING, WorkerState.DRAINING, WorkerState.STOPPED)
        ready = supervisor.pool.ready and supervisor.cycle.connected and not stopping
        detail = {
            "state": str(state),
            "seconds_since_poll": round(supervisor.seconds_since_answer(), 1),
            "running": supervisor.runs.started,
        }
        # A store that is away is no reason to restart a worker: it comes back by itself.
        return Health(supervisor.seconds_since_step() < UNWELL_SECONDS, ready, detail)

    @property
    def database_url(self) -> str:
        """A flag, else what the app says, else the settings."""
        options = self.options
        return options.database_flag or self.supervisor.runs.database_url or options.database_url

    def _open(self, timeout_seconds: float) -> Store:
        return open_store(
            self.database_url, timeout_seconds=timeout_seconds, pool_size=CONNECTIONS, notify=self.options.notify
        )

    def _watch(self, event: Event) -> None:
        if not isinstance(event, WorkerMoved):
            return
        if event.after is WorkerState.RECOVERING and not self._seen_ready:
            self._seen_ready = True
            self._connected()
        if event.after is WorkerState.DRAINING:
            sd_notify.stopping()
        elif event.after is not WorkerState.STOPPED:
            sd_notify.status(str(event.after))

    def _connected(self) -> None:
        supervisor = self.supervisor

        def ring() -> None:
            supervisor.cycle.ring()
            supervisor.bell.ring()

        status = ListenerStatus(self.events, supervisor.bell.ring)
        supervisor.parts.append(status)
        wake_up = open_wake_up(self.database_url, ring, self.options.notify, status.note)
        if isinstance(wake_up, ChangeCheck):
            supervisor.parts.append(FileChanges(wake_up, supervisor.cycle, supervisor.cycle.ring))
        if wake_up is not None:
            self._close_wake_up = wake_up.close
        sd_notify.ready("connected")
        self.told(f"store: {mask_url(self.database_url)}")
        self.told(self._totals())

    def _totals(self) -> str:
        pool = self.supervisor.pool
        parts = [_counted(spec.kind, count, spec.slots) for spec, count in pool.wanted().items()]
        queues = "all queues" if self.options.queues is None else f"queues {', '.join(self.options.queues)}"
        tasks = _number(len(pool.tasks), "task")
        return f"{tasks}, {queues}, {' + '.join(parts)}, worker {self.options.worker_id}"


def _counted(kind: Kind, processes: int, slots: int) -> str:
    what = "coroutines" if kind is Kind.ASYNC else "functions and commands"
    return f"{_number(processes * slots, 'slot')} for {what} ({_number(processes, 'process', 'processes')} of {slots})"


def _number(count: int, one: str, many: str | None = None) -> str:
    return f"{count} {one if count == 1 else many or one + 's'}"


class _Watchdog:
    """systemd restarts a worker whose loop stands still."""

    def __init__(self, interval: float) -> None:
        self._interval = interval
        self._at = 0.0

    def step(self, now: float) -> None:
        if now >= self._at:
            self._at = now + self._interval
            sd_notify.watchdog()

    def wake_at(self) -> float:
        return self._at if self._interval else NEVER
