"""What the operating system is to the code under test: threads, queues, sockets, selectors, signals, processes, clocks.

Only these are simulated. Each has the part of its real counterpart's interface that product code uses; a call that
would wait lets the scheduler go on.
"""

from __future__ import annotations

import queue
import selectors
import signal
from collections import deque
from collections.abc import Callable, Iterable, Sequence
from datetime import UTC, datetime, timedelta, tzinfo
from random import Random
from types import SimpleNamespace
from typing import Any, Generic, TypeVar

from tests.simulation.world import Host, Strand, World

Item = TypeVar("Item")

# A Wednesday, far from any change of clocks.
BEGINNING = datetime(2025, 1, 15, 12, 0, tzinfo=UTC)
_TICK = timedelta(microseconds=1)


class Computer(Host):
    """A host with signals and descriptors. `world` is the one it lives in."""

    def __init__(self, world: World, name: str) -> None:
        super().__init__(name)
        self.world = world
        self.handlers: dict[int, Callable[[int, Any], object]] = {}
        self.wakeup: Socket | None = None
        self.undelivered: deque[int] = deque()

    def signal(self, number: int) -> None:
        """To this process; it hears of it when its main strand next runs."""
        self.undelivered.append(number)
        if self.wakeup is not None:
            self.wakeup.send(bytes([number]))

    def deliver(self) -> None:
        while self.undelivered:
            number = self.undelivered.popleft()
            self.handlers[number](number, None)


class Machine:
    """The operating system of one history."""

    def __init__(self, world: World) -> None:
        self.world = world
        self.noise = Random(world.random.getrandbits(64))
        self.sockets: dict[int, Socket] = {}
        self.launch: Callable[[Sequence[str], Socket, Computer], Any] = _no_programs
        self._next_descriptor = 100

    @property
    def computer(self) -> Computer:
        strand = self.world.current
        assert strand is not None
        assert isinstance(strand.host, Computer)
        return strand.host

    # clocks

    def seconds(self) -> float:
        """Since start-up. Never 0: code takes that for "not yet"."""
        return 1_000.0 + self.world.now

    def moment(self) -> datetime:
        return BEGINNING + timedelta(seconds=self.world.now)

    def time(self) -> Any:
        return SimpleNamespace(
            monotonic=self.seconds,
            time=lambda: self.moment().timestamp(),
            time_ns=lambda: (self.moment() - datetime(1970, 1, 1, tzinfo=UTC)) // _TICK * 1000,
            sleep=self.world.sleep,
            perf_counter=self.seconds,
        )

    def datetime(self) -> Any:
        machine = self

        class Moment(datetime):
            @classmethod
            def now(cls, tz: tzinfo | None = None) -> Moment:
                return cls.fromtimestamp(machine.moment().timestamp(), tz)

        return Moment

    def os(self) -> Any:
        return SimpleNamespace(urandom=self.noise.randbytes, getpid=lambda: 1)

    # threads

    def threading(self) -> Any:
        world = self.world

        class Thread:
            def __init__(self, target: Callable[[], object], name: str = "", daemon: bool = False) -> None:
                assert daemon, "no thread of ours may keep a process from ending"
                self._target, self._name = target, name
                self._strand: Strand | None = None

            def start(self) -> None:
                assert world.current is not None
                self._strand = world.spawn(world.current.host, self._name, self._target)

            def is_alive(self) -> bool:
                return self._strand is not None and not self._strand.is_over

            def join(self, seconds: float) -> None:
                deadline = world.now + seconds
                while self.is_alive() and world.now < deadline:
                    world.sleep(0.05)

        return SimpleNamespace(Thread=Thread, Condition=lambda: Condition(world), Lock=Unlocked)

    def queues(self) -> Any:
        return SimpleNamespace(SimpleQueue=lambda: Queue(self.world), Empty=queue.Empty)

    # descriptors

    def socketpair(self) -> tuple[Socket, Socket]:
        ours, theirs = Socket(self), Socket(self)
        ours.peer, theirs.peer = theirs, ours
        return ours, theirs

    def descriptor(self, socket: Socket) -> int:
        self._next_descriptor += 1
        self.sockets[self._next_descriptor] = socket
        return self._next_descriptor

    def signals(self) -> Any:
        def handle(number: int, handler: Callable[[int, Any], object]) -> None:
            self.computer.handlers[number] = handler

        def wake_up(descriptor: int, **_options: bool) -> None:
            self.computer.wakeup = None if descriptor < 0 else self.sockets[descriptor]

        return SimpleNamespace(
            signal=handle,
            set_wakeup_fd=wake_up,
            SIGTERM=signal.SIGTERM,
            SIGINT=signal.SIGINT,
            SIGCHLD=signal.SIGCHLD,
        )

    def selecting(self) -> Any:
        return SimpleNamespace(
            DefaultSelector=lambda: Selector(self),
            EVENT_READ=selectors.EVENT_READ,
            EVENT_WRITE=selectors.EVENT_WRITE,
            SelectorKey=selectors.SelectorKey,
        )

    # processes

    def subprocesses(self) -> Any:
        import subprocess

        def popen(command: Sequence[str], pass_fds: Iterable[int], **_options: Any) -> Any:
            [descriptor] = pass_fds
            return self.launch(command, self.sockets[descriptor], self.computer)

        return SimpleNamespace(Popen=popen, DEVNULL=subprocess.DEVNULL, TimeoutExpired=subprocess.TimeoutExpired)


def _no_programs(*_arguments: Any) -> Any:
    raise OSError("there is nothing to run")


class Unlocked:
    """A lock that nobody ever waits for: whoever holds one of ours does not wait inside."""

    def __enter__(self) -> None:
        return None

    def __exit__(self, *_error: object) -> None:
        return None


class Waiters:
    """Strands that wait for one thing."""

    def __init__(self, world: World) -> None:
        self._world = world
        self._waiting: list[Strand] = []

    def wait(self, until: float | None) -> None:
        strand = self._world.current
        assert strand is not None
        self._waiting.append(strand)
        try:
            self._world.wait(until)
        finally:
            self._waiting.remove(strand)

    def wake(self) -> None:
        for strand in self._waiting:
            self._world.wake(strand)


class Queue(Generic[Item]):
    def __init__(self, world: World) -> None:
        self._world = world
        self._items: deque[Item] = deque()
        self._waiters = Waiters(world)

    def put(self, item: Item) -> None:
        self._items.append(item)
        self._waiters.wake()

    def empty(self) -> bool:
        return not self._items

    def get_nowait(self) -> Item:
        if not self._items:
            raise queue.Empty
        return self._items.popleft()

    def get(self, timeout: float | None = None) -> Item:
        until = None if timeout is None else self._world.now + timeout
        while not self._items:
            if until is not None and self._world.now >= until:
                raise queue.Empty
            self._waiters.wait(until)
        return self._items.popleft()


class Condition(Unlocked):
    def __init__(self, world: World) -> None:
        self._world = world
        self._waiters = Waiters(world)

    def notify_all(self) -> None:
        self._waiters.wake()

    def wait_for(self, is_so: Callable[[], object], timeout: float | None = None) -> object:
        until = None if timeout is None else self._world.now + timeout
        while not (found := is_so()) and (until is None or self._world.now < until):
            self._waiters.wait(until)
        return found


class Future:
    """Of `concurrent.futures`, as far as a lazy store needs one."""

    def __init__(self, world: World) -> None:
        self._waiters = Waiters(world)
        self._outcome: tuple[Any, BaseException | None] | None = None

    def set_result(self, value: Any) -> None:
        self._outcome = value, None
        self._waiters.wake()

    def set_exception(self, error: BaseException) -> None:
        self._outcome = None, error
        self._waiters.wake()

    def result(self) -> Any:
        while self._outcome is None:
            self._waiters.wait(None)
        value, error = self._outcome
        if error is not None:
            raise error
        return value


class Socket:
    """One end of a pair. What is sent arrives at once; nobody's buffer is ever full."""

    def __init__(self, machine: Machine) -> None:
        self.peer: Socket | None = None
        self.number = machine.descriptor(self)
        self.is_closed = False
        self._inbox: deque[bytes] = deque()
        self._waiters = Waiters(machine.world)

    def fileno(self) -> int:
        return self.number

    def setblocking(self, blocking: bool) -> None:
        assert not blocking

    def send(self, data: bytes | bytearray) -> int:
        assert self.peer is not None
        if self.is_closed or self.peer.is_closed:
            raise BrokenPipeError("nobody reads this")
        self.peer._inbox.append(bytes(data))
        self.peer.stir()
        return len(data)

    def recv(self, _most: int) -> bytes:
        if self._inbox:
            return self._inbox.popleft()
        if self.has_ended:
            return b""
        raise BlockingIOError

    @property
    def has_ended(self) -> bool:
        return self.is_closed or self.peer is None or self.peer.is_closed

    @property
    def is_readable(self) -> bool:
        return bool(self._inbox) or self.has_ended

    def stir(self) -> None:
        self._waiters.wake()

    def wait(self, until: float | None) -> None:
        if not self.is_readable:
            self._waiters.wait(until)

    @property
    def waiters(self) -> Waiters:
        return self._waiters

    def close(self) -> None:
        self.is_closed = True
        if self.peer is not None:
            self.peer.stir()

    def __enter__(self) -> Socket:
        return self

    def __exit__(self, *_error: object) -> None:
        """The descriptor lives on in the process that it was passed to."""


class Selector:
    def __init__(self, machine: Machine) -> None:
        self._machine = machine
        self._world = machine.world
        self._keys: dict[int, selectors.SelectorKey] = {}

    def register(self, file: Any, events: int) -> selectors.SelectorKey:
        key = selectors.SelectorKey(file, file.fileno(), events, None)
        self._keys[key.fd] = key
        return key

    def unregister(self, file: Any) -> None:
        for descriptor, key in list(self._keys.items()):
            if key.fileobj is file:
                del self._keys[descriptor]

    def modify(self, file: Any, events: int) -> selectors.SelectorKey:
        return self.register(file, events)

    def get_key(self, file: Any) -> selectors.SelectorKey:
        return self._keys[file.fileno()]

    def select(self, seconds: float) -> list[tuple[selectors.SelectorKey, int]]:
        ready = self._ready()
        if not ready:
            self._wait(self._world.now + seconds)
            ready = self._ready()
        self._machine.computer.deliver()
        return ready

    def close(self) -> None:
        self._keys.clear()

    def _wait(self, until: float) -> None:
        strand = self._world.current
        assert strand is not None
        waiters = [self._machine.sockets[descriptor].waiters for descriptor in self._keys]
        for one in waiters:
            one._waiting.append(strand)
        try:
            self._world.wait(until)
        finally:
            for one in waiters:
                one._waiting.remove(strand)

    def _ready(self) -> list[tuple[selectors.SelectorKey, int]]:
        found = []
        for key in self._keys.values():
            readable = selectors.EVENT_READ if self._machine.sockets[key.fd].is_readable else 0
            events = key.events & (readable | selectors.EVENT_WRITE)
            if events:
                found.append((key, events))
        return found
