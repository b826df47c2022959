"""Many jobs of one call, which differ in their payloads alone.

Each is made when it is asked for, so that a store can take in the first while the others are still being made; one that
is refused then ends the store's transaction, and nothing of the call is kept. Whoever needs them more than once, or
needs to know beforehand that all of them are right, makes a list of them first.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from typing import Any, overload

from holdfast.domain.job import NewJob

Payload = dict[str, Any]


class AlikeJobs(Sequence[NewJob]):
    """`like` is a job with everything that they share; `payload_at` makes the payload of one of them, or refuses it."""

    def __init__(self, like: NewJob, count: int, payload_at: Callable[[int], Payload]) -> None:
        self.like = like
        self._count = count
        self._payload_at = payload_at

    def __len__(self) -> int:
        return self._count

    @overload
    def __getitem__(self, index: int) -> NewJob: ...
    @overload
    def __getitem__(self, index: slice) -> list[NewJob]: ...
    def __getitem__(self, index: int | slice) -> NewJob | list[NewJob]:
        if isinstance(index, slice):
            return [self[position] for position in range(*index.indices(self._count))]
        return self.like.with_payload(self._payload_at(range(self._count)[index]))

    def __iter__(self) -> Iterator[NewJob]:
        return map(self.like.with_payload, map(self._payload_at, range(self._count)))

    def identified(self) -> Iterator[tuple[str, str]]:
        """Spec hash and payload text of each, for whoever needs nothing else of them."""
        return map(self.like.identify, map(self._payload_at, range(self._count)))

    def with_traceparent(self, traceparent: str) -> AlikeJobs:
        return AlikeJobs(self.like.with_traceparent(traceparent), self._count, self._payload_at)


def representatives(jobs: Sequence[NewJob]) -> Sequence[NewJob]:
    """Those in which everything but their payloads can be seen."""
    return [jobs.like] if isinstance(jobs, AlikeJobs) else jobs
