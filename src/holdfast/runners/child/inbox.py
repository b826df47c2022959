"""The jobs a runner holds: queued until a slot takes them, then active until they are done."""

from __future__ import annotations

from collections import deque
from collections.abc import Iterable
from threading import Condition, Lock
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from holdfast.runners.child.work import Work


class Inbox:
    """One lock for the queue and the active jobs: a job is always in exactly one of them, and a cancel finds it."""

    def __init__(self) -> None:
        self._lock = Lock()
        self._changed = Condition(self._lock)
        self._queue: deque[Work] = deque()
        self._active: dict[str, Work] = {}
        self._is_closed = False

    def put(self, works: Iterable[Work]) -> bool:
        """False once the runner is stopping: nothing is taken any more."""
        with self._lock:
            if self._is_closed:
                return False
            self._queue.extend(works)
            self._changed.notify_all()
            return True

    def take_now(self) -> Work | None:
        with self._lock:
            return self._next()

    def take(self) -> Work | None:
        """Waits for work; None once the runner is stopping."""
        with self._lock:
            while not self._queue and not self._is_closed:
                self._changed.wait()
            return self._next()

    def _next(self) -> Work | None:
        if not self._queue:
            return None
        work = self._queue.popleft()
        self._active[work.id] = work
        return work

    def finished(self, work: Work) -> None:
        self._active.pop(work.id, None)

    def remove(self, lease_id: str) -> Work | None:
        """The job, if it was still queued; it is not any more."""
        with self._lock:
            found = next((work for work in self._queue if work.id == lease_id), None)
            if found is not None:
                self._queue.remove(found)
            return found

    def active(self, lease_id: str) -> Work | None:
        return self._active.get(lease_id)

    def all_active(self) -> list[Work]:
        return list(self._active.values())

    def only_active(self) -> Work | None:
        """The job that runs here, if it is the only one."""
        active = self.all_active()
        return active[0] if len(active) == 1 else None

    @property
    def is_closed(self) -> bool:
        return self._is_closed

    def empty(self) -> list[str]:
        """Take every queued job out; their ids."""
        with self._lock:
            ids = [work.id for work in self._queue]
            self._queue.clear()
            return ids

    def close(self) -> list[str]:
        """Take no more; the ids of what was still queued."""
        with self._lock:
            self._is_closed = True
            self._changed.notify_all()
        return self.empty()
