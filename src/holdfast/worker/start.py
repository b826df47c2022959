"""Put a worker together and run it: stores, wake-ups, health, logs. Everything the command line needs to know."""

from __future__ import annotations

import gc
from collections.abc import Callable
from dataclasses import dataclass, field
from functools import partial
from importlib import import_module
from pathlib import Path
from threading import Thread
from typing import TYPE_CHECKING, ClassVar, cast

from holdfast.artifacts.opening import artifacts_root, check_for_worker
from holdfast.domain.errors import ConfigurationError
from holdfast.domain.events import Event, Events, RunnerStarted, WorkerMoved
from holdfast.domain.manifest import Kind
from holdfast.domain.timing import LONGEST_TIMEOUT_SECONDS
from holdfast.domain.traceparent import parse
from holdfast.domain.webhook import DELIVERY_TASK
from holdfast.domain.worker_states import WorkerState
from holdfast.maintenance.chores import Chore
from holdfast.periodic.fleet import fleet_chores
from holdfast.periodic.lazy_store import LazyStore
from holdfast.periodic.part import NEVER
from holdfast.periodic.retrying import Retrying
from holdfast.periodic.upkeep import Upkeep
from holdfast.ports import Store
from holdfast.settings import mask_url
from holdfast.tasks.tracing import recording
from holdfast.transports.sqlite_changes import ChangeCheck
from holdfast.wiring.cache import open_cache
from holdfast.wiring.http import AccessRefused, open_control_plane
from holdfast.wiring.redis import LOOK_SECONDS, open_stream_wake_up, open_transport, streamed
from holdfast.worker import sd_notify
from holdfast.worker.options import WorkerOptions
from holdfast.worker.patience import Patience, WaitingStore
from holdfast.worker.reload import Reload
from holdfast.worker.serving import Caching, Serving
from holdfast.worker.stores import CONNECTIONS
from holdfast.worker.supervisor import Supervisor
from holdfast.worker.wake_ups import ListenerStatus

if TYPE_CHECKING:
    from holdfast.observe.health import Health
    from holdfast.stores.sql_store import SqlStore

# The loop never sleeps for more than a second. One that stands still for so long should be restarted.
UNWELL_SECONDS = 30.0
# For one statement of upkeep: long enough for a batch on a disk that is slow, or a look at tables that are cold.
UPKEEP_TIMEOUT_SECONDS = 60.0


@dataclass
class Worker:
    """A worker with everything around it. `database_url` may come from the app, which only the runners can read."""

    options: WorkerOptions
    events: Events
    told: Callable[[str], None] = lambda _line: None
    supervisor: Supervisor = field(init=False)
    watched: ClassVar[tuple[type, ...]] = (WorkerMoved, RunnerStarted)

    def __post_init__(self) -> None:
        self._control = LazyStore(lambda: self._open(self.supervisor.timing().timeout))
        # A claim that takes long costs nobody a lease: it may take as long as with the longest one.
        self._claims = LazyStore(lambda: self._open(LONGEST_TIMEOUT_SECONDS))
        # Upkeep does one thing at a time. What is cut off there is done again later.
        self._upkeep_store = LazyStore(lambda: self._open_for_upkeep(UPKEEP_TIMEOUT_SECONDS))
        # What jobs ask for has a way of its own, opened by the first that asks: no heartbeat stands in line behind it.
        self._asks = LazyStore(lambda: self._open(self.supervisor.timing().timeout))
        self._cache = open_cache(self.options.cache_url, self._asks)
        self.supervisor = Supervisor(
            self.options,
            self._control,
            self._claims,
            self.events,
            patience=self._patience(),
            serving=Serving(
                self._asks,
                Caching(self._cache.store, self.options.cache_enabled, self.options.cache_ttl_seconds),
            ),
            traces=recording(),
        )
        self.events.subscribe(self._watch, only=self.watched)
        self._close_upkeep: Callable[[], None] = lambda: None
        self._close_wake_ups: list[Callable[[], None]] = []
        self._seen_ready = False
        self._seen_runner = False
        redis = None if self.options.control_plane else self.options.redis
        self._transport = None if redis is None else open_transport(redis)

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
            for close in self._close_wake_ups:
                close()
            self._close_upkeep()
            self._control.close()
            self._claims.close()
            self._asks.close()
            self._cache.close()
            self._upkeep_store.close()
            if self._transport is not None:
                self._transport.close()

    def health(self) -> Health:
        """Asked by another thread: it only reads."""
        from holdfast.observe.health import Health  # whoever asks has it

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

    def pools(self) -> dict[str, Callable[[], tuple[int, int] | None]]:
        """How full each of its ways to the store is, for whoever looks."""
        ways = {
            "control": self._control,
            "claims": self._claims,
            "asks": self._asks,
            "upkeep": self._upkeep_store,
        }
        return {name: partial(_pool_use, way) for name, way in ways.items()}

    @property
    def is_traced(self) -> bool:
        return self.supervisor.runs.traces is not None

    def trace_id(self, job_id: str, attempt: int) -> str | None:
        """Of an attempt that this worker holds, where it traces."""
        held = self.supervisor.book.newest(f"{job_id}.{attempt}")
        known = None if held is None or held.trace is None else parse(held.trace.traceparent)
        return None if known is None else f"{known.trace_id:032x}"

    @property
    def database_url(self) -> str:
        """A control plane, if one was named, whatever the app says; else a flag, the app, the settings."""
        options = self.options
        return (
            options.control_plane or options.database_flag or self.supervisor.runs.database_url or options.database_url
        )

    @property
    def artifacts_url(self) -> str | None:
        """Likewise."""
        options = self.options
        return options.artifacts_flag or self.supervisor.runs.artifacts_url or options.artifacts_url

    def _open(self, timeout_seconds: float) -> Store:
        self._check_where_files_go()
        if self.options.control_plane is not None:
            return self._open_control_plane(self.options.control_plane, timeout_seconds)
        from holdfast.wiring.sql import open_store

        store = self._with_streams(
            open_store(
                self.database_url, timeout_seconds=timeout_seconds, pool_size=CONNECTIONS, notify=self.options.notify
            )
        )
        try:
            # Here, because whoever claims a job has opened the store before: jobs know from the first one on.
            self._settle_where_files_go(store)
        except BaseException:
            store.close()
            raise
        return store

    def _with_streams(self, store: SqlStore) -> Store:
        """One that drains must know for certain that nothing is due: the streams alone cannot tell."""
        if self._transport is None:
            return store
        return streamed(store, self._transport, look_seconds=0.0 if self.options.drain else LOOK_SECONDS)

    def _open_control_plane(self, url: str, timeout_seconds: float) -> Store:
        """A token that is wrong from the beginning is a mistake to be told; later on it is waited out."""
        remote = open_control_plane(
            url, self.options.token, timeout_seconds=timeout_seconds, connections=CONNECTIONS, for_worker=True
        )
        store = cast(Store, remote)  # it refuses what has no form over HTTP, and a worker asks for none of that
        try:
            store.store_id()
            self._settle_where_files_go(store)
        except (AccessRefused, ConfigurationError) as error:
            store.close()
            if not self._seen_ready:
                self.supervisor.refusal = ConfigurationError(str(error))
            raise
        except BaseException:
            store.close()
            raise
        return store

    def _patience(self) -> Patience | None:
        """An idle worker waits at a control plane; one that drains wants to know at once that nothing is due."""
        if self.options.control_plane is None:
            return None
        seconds = 0.0 if self.options.drain else self.options.long_poll_seconds
        return Patience(lambda: cast(WaitingStore, self._claims()), seconds)

    def _check_where_files_go(self) -> None:
        try:
            if self.artifacts_url is not None:
                check_for_worker(self.artifacts_url)
        except ConfigurationError as error:
            self.supervisor.refusal = error
            raise

    def _settle_where_files_go(self, store: Store) -> None:
        if (location := self.artifacts_url) is not None:
            self.supervisor.runs.hand.artifacts = artifacts_root(location, store.store_id())

    def _open_for_upkeep(self, timeout_seconds: float) -> Store:
        from holdfast.wiring.sql import open_store

        return open_store(self.database_url, timeout_seconds=timeout_seconds, pool_size=1, notify=False)

    def _chores(self, store: Store) -> list[Chore]:
        """What this worker does for the whole fleet when its turn comes."""
        return fleet_chores(
            store,
            holder=self.options.worker_id,
            database_url=self.database_url,
            upkeep_seconds=self.options.upkeep_seconds,
            artifacts=self.supervisor.runs.hand.artifacts,
            rq_url=self.options.rq_url,
            rq_serializer=self.options.rq_serializer,
            redis=self.options.redis,
        )

    def _begin_upkeep(self) -> None:
        supervisor = self.supervisor
        upkeep = Upkeep(
            self._upkeep_store,
            self._chores,
            self.options.worker_id,
            self.events,
            supervisor.bell.ring,
            lambda: supervisor.cycle.connected and not supervisor.draining.begun,
            Retrying("upkeep", self.events, longest=30.0),
        )
        supervisor.parts.append(upkeep)
        self._close_upkeep = upkeep.close

    def _watch(self, event: Event) -> None:
        if isinstance(event, RunnerStarted) and not self._seen_runner:
            self._seen_runner = True
            self._load_the_store()
        if not isinstance(event, WorkerMoved):
            return
        if event.after is WorkerState.RECOVERING and not self._seen_ready:
            self._seen_ready = True
            self._connected()
        if event.after is WorkerState.DRAINING:
            sd_notify.stopping()
        elif event.after is not WorkerState.STOPPED:
            sd_notify.status(str(event.after))

    def _load_the_store(self) -> None:
        """The libraries that speak to the store are loaded while the first runner imports the app, on another core:
        where the store is may be known only then. In the order in which whoever opens it would load them, so that one
        who comes meanwhile waits at the first."""
        modules = ["holdfast.wiring.sql"]
        if self.options.control_plane is not None:
            modules = ["holdfast.remote.line", "holdfast.remote.store"]
        elif (self.options.database_flag or self.options.database_url).startswith("postgres"):
            modules.append("holdfast.wiring.postgres")
        Thread(target=_load, args=(modules,), name="holdfast-loading", daemon=True).start()

    def _connected(self) -> None:
        _spare_the_collector()
        if self.options.control_plane is None:
            self._listen_to_the_database()
            self._begin_upkeep()
        sd_notify.ready("connected")
        self.told(f"store: {mask_url(self.database_url)}")
        if self._transport is not None:
            self.told(f"streams: {mask_url(self._transport.options.url)}")
        self.told(self._totals())

    def _listen_to_the_database(self) -> None:
        from holdfast.wiring.sql import open_wake_up

        supervisor = self.supervisor

        def ring() -> None:
            supervisor.cycle.ring()
            supervisor.bell.ring()

        status = ListenerStatus(self.events, supervisor.bell.ring)
        supervisor.parts.append(status)
        wake_up = open_wake_up(self.database_url, ring, self.options.notify, status.note, self.options.listen_url)
        if isinstance(wake_up, ChangeCheck):
            supervisor.waiting.has_changed = wake_up.changed
        if wake_up is not None:
            self._close_wake_ups.append(wake_up.close)
        if self.options.redis is not None:
            self._close_wake_ups.append(open_stream_wake_up(self.options.redis, ring, status.note).close)

    def _totals(self) -> str:
        pool = self.supervisor.pool
        parts = [_counted(spec.kind, count, spec.slots) for spec, count in pool.wanted().items()]
        queues = "all queues" if self.options.queues is None else f"queues {', '.join(self.options.queues)}"
        tasks = _number(sum(1 for name in pool.tasks if name != DELIVERY_TASK), "task")
        return f"{tasks}, {queues}, {' + '.join(parts)}, worker {self.options.worker_id}"


def _load(modules: list[str]) -> None:
    for module in modules:
        import_module(module)


def _pool_use(way: LazyStore) -> tuple[int, int] | None:
    if way.opened is None:
        return None
    from holdfast.stores.pool_use import pool_use

    return pool_use(way.opened)


def _counted(kind: Kind, processes: int, slots: int) -> str:
    what = "coroutines" if kind is Kind.ASYNC else "functions and commands"
    return f"{_number(processes * slots, 'slot')} for {what} ({_number(processes, 'process', 'processes')} of {slots})"


def _number(count: int, one: str, many: str | None = None) -> str:
    return f"{count} {one if count == 1 else many or one + 's'}"


def _spare_the_collector() -> None:
    """Exempt what is loaded by now from garbage collection: it stays. The thousands of objects that a busy worker
    makes each second are in no cycles."""
    gc.freeze()
    gc.set_threshold(10_000, 10, 10)


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
