"""An event that costs nothing until a thread waits for it. Every job has two, and nearly no job waits."""

from __future__ import annotations

from _thread import LockType, allocate_lock
from contextlib import suppress

from holdfast.forks import fork_safe

_making = fork_safe(allocate_lock())


class Flag:
    """As `threading.Event`, without `clear`. `set` releases the waiters after it has set the value, and a waiter reads
    the value again after it is on the list: so none is missed.

    Made of plain locks: `threading.Event` looks up its parts by name on every use, and user code may replace them."""

    __slots__ = ("_gates", "_is_set")

    def __init__(self) -> None:
        self._is_set = False
        self._gates: list[LockType] | None = None

    def is_set(self) -> bool:
        return self._is_set

    def set(self) -> None:
        self._is_set = True
        for gate in list(self._gates or ()):
            with suppress(RuntimeError):  # another call of `set` was faster
                gate.release()

    def wait(self, timeout: float | None = None) -> bool:
        gate = allocate_lock()
        gate.acquire()
        with _making:
            if self._gates is None:
                self._gates = []
            self._gates.append(gate)
        try:
            if not self._is_set:
                gate.acquire(timeout is None or timeout > 0, -1 if timeout is None or timeout <= 0 else timeout)
        finally:
            self._gates.remove(gate)
        return self._is_set
