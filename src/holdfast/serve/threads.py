"""Threads that nobody waits for at the end: a call that hangs on a store which does not answer must not keep a process
alive, and the interpreter joins the threads of an executor before it exits."""

from __future__ import annotations

import threading
from collections.abc import Callable
from queue import SimpleQueue


class DaemonThreads:
    """Started as they are needed. What is submitted must not raise."""

    def __init__(self, name: str, most: int) -> None:
        self._name = name
        self._most = most
        self._work: SimpleQueue[Callable[[], None] | None] = SimpleQueue()
        self._idle = threading.Semaphore(0)
        self._threads = 0
        self._at_work = 0
        self._counting = threading.Lock()

    @property
    def busy(self) -> int:
        """How many of them are at work."""
        return self._at_work

    @property
    def waiting(self) -> int:
        """How much waits for one of them."""
        return self._work.qsize()

    def submit(self, work: Callable[[], None]) -> None:
        """From one thread only, the server's loop."""
        self._work.put(work)
        if not self._idle.acquire(blocking=False) and self._threads < self._most:
            self._threads += 1
            threading.Thread(target=self._run, name=f"{self._name}_{self._threads}", daemon=True).start()

    def close(self) -> None:
        """Does not wait: what is under way goes on, and then its thread ends."""
        for _thread in range(self._threads):
            self._work.put(None)

    def _run(self) -> None:
        while (work := self._work.get()) is not None:
            self._count(1)
            work()
            self._count(-1)
            del work  # and what it holds
            self._idle.release()

    def _count(self, more: int) -> None:
        with self._counting:
            self._at_work += more
