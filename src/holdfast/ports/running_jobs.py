"""What a running job asks, through its worker: to enter a source, what was answered before, to keep its output."""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING, Any, Protocol

if TYPE_CHECKING:
    from holdfast.domain.answers import Beat
    from holdfast.domain.record import NewRecord, Record, Written
    from holdfast.domain.sources import Cached, Entered, Entry, Leaving, SourceDeclaration
    from holdfast.domain.views import Page


class SourceStore(Protocol):
    """What a running job wants of sources. `lease` is the attempt it belongs to: LeaseLost when that is over."""

    def enter_source(self, lease: Beat, entry: Entry) -> Entered: ...

    def leave_source(self, lease: Beat, leaving: Leaving) -> None: ...

    def announce_sources(self, declared: Sequence[SourceDeclaration]) -> None: ...

    def forget_holds(self, limit: int) -> int: ...


class CacheStore(Protocol):
    """What outside systems answered, kept for a while. `lease` is the attempt that asks, if one does: over HTTP only
    who holds a job may ask (LeaseLost)."""

    def cached(self, source: str, key: str, lease: Beat | None = None) -> Cached | None: ...

    def keep_cached(self, source: str, key: str, value: Any, ttl_seconds: float, lease: Beat | None = None) -> None: ...

    def forget_cached(self, limit: int) -> int: ...

    def clear_cache(self, source: str, key: str | None = None) -> int: ...


class RecordStore(Protocol):
    """The deduplicated output of jobs."""

    def write_records(self, new: Sequence[NewRecord], lease: Beat | None = None) -> list[Written]:
        """All or nothing. With a lease: only if it is still held (LeaseLost), and as written by its attempt."""

    def records(
        self,
        *,
        scope: str | None = None,
        source: str | None = None,
        job_id: str | None = None,
        dedupe_key: str | None = None,
        limit: int = 50,
        after: str | None = None,
    ) -> Page[Record]: ...

    def record(self, record_id: str) -> Record: ...

    def delete_records(self, scope: str, source: str | None = None, dedupe_key: str | None = None) -> int: ...
