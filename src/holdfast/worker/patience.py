"""Claims that wait at a control plane until there is something to claim, so that an idle worker need not poll.

A worker that is to stop does not wait for the answer: the wait is cut off from outside, and what may have been claimed
in that very moment is asked for and given back.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Protocol

from holdfast.domain.answers import Brought


class WaitingStore(Protocol):
    def claim_within(
        self, seconds: float, worker: str, limit: int, queues: Sequence[str] | None, tasks: Sequence[str] | None
    ) -> Brought: ...

    def stop_waiting(self) -> None: ...


class Patience:
    """`seconds` is how long one claim may wait."""

    def __init__(self, store: Callable[[], WaitingStore], seconds: float) -> None:
        self.seconds = seconds
        self._store = store
        self._opened: WaitingStore | None = None
        self._stopped = False

    def claim(
        self, seconds: float, worker: str, limit: int, queues: Sequence[str] | None, tasks: Sequence[str] | None
    ) -> Brought:
        self._opened = opened = self._store()
        return opened.claim_within(0.0 if self._stopped else seconds, worker, limit, queues, tasks)

    def stop(self) -> None:
        """Never blocks: a store that is only being opened has nobody waiting at it."""
        self._stopped = True
        if self._opened is not None:
            self._opened.stop_waiting()
