"""Blocks of one source inside each other: they share an entry.

An inner block enters nothing, so it cannot wait for itself. The same holds for a task that was created inside a block,
while that block is open; what the task does afterwards enters for itself. The block that entered speaks for all of
them, and the last one out leaves: so a place is held as long as somebody is inside, and not longer.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from contextvars import ContextVar
from threading import RLock
from types import MappingProxyType
from typing import TYPE_CHECKING, NamedTuple

from holdfast.forks import fork_safe

if TYPE_CHECKING:
    from holdfast.domain.sources import Leaving

Key = tuple[str, int, str]  # job, attempt, source


class _Stay:
    """One entry to a source."""

    def __init__(self, number: int | None) -> None:
        self.number = number  # None: there is no engine that was asked
        self.is_open = True  # until the block ends that entered
        self.leaving: Leaving | None = None  # what that one had to say
        self._lock = fork_safe(RLock())
        self._blocks = 1

    def join(self) -> bool:
        with self._lock:
            if self.is_open:
                self._blocks += 1
            return self.is_open

    def end_block(self, *, is_outer: bool) -> bool:
        """True for the last one out."""
        with self._lock:
            self._blocks -= 1
            if is_outer or self._blocks == 0:
                self.is_open = False
            return self._blocks == 0


class _Part(NamedTuple):
    """The running code is inside so many blocks of this entry. A task begins with the depth at which it was created,
    and the entry may be over since."""

    stay: _Stay
    depth: int


_inside: ContextVar[Mapping[Key, _Part]] = ContextVar("holdfast_inside", default=MappingProxyType({}))


class Blocks:
    """Of one `ctx.source(name)`, which threads and coroutines may share."""

    def __init__(self, key: Key) -> None:
        self._key = key
        self._stays: list[_Stay] = []  # one for each block that is open

    @property
    def is_inside(self) -> bool:
        part = _inside.get().get(self._key)
        return part is not None and part.stay.is_open

    def join(self) -> bool:
        """True inside another block of this source, which has entered for both."""
        part = _inside.get().get(self._key)
        if part is None or not part.stay.join():
            return False
        self._begin(part.stay, part.depth + 1)
        return True

    def begin(self, number: int | None) -> None:
        """A block that has entered."""
        self._begin(_Stay(number), 1)

    def end(self, speak: Callable[[int], Leaving]) -> Leaving | None:
        """What there is to tell if this is the last one out; `speak` says it of an entry with this number."""
        if not self._stays:
            return None
        stay, is_outer = self._end()
        if is_outer and stay.number is not None:
            stay.leaving = speak(stay.number)
        if not stay.end_block(is_outer=is_outer) or stay.number is None:
            return None
        return stay.leaving or speak(stay.number)

    def _begin(self, stay: _Stay, depth: int) -> None:
        self._stays.append(stay)
        _inside.set({**_inside.get(), self._key: _Part(stay, depth)})

    def _end(self) -> tuple[_Stay, bool]:
        """The entry of the block that ends, and whether it is the block that entered. It may end in another context
        than it began in."""
        here = dict(_inside.get())
        part = here.pop(self._key, None)
        if part is None or part.stay not in self._stays:
            stay = self._stays.pop()
            return stay, stay not in self._stays
        self._stays.remove(part.stay)
        if part.depth > 1:
            here[self._key] = _Part(part.stay, part.depth - 1)
        _inside.set(here)
        return part.stay, part.depth == 1
