"""What a job may ask the engine for while it runs: to keep records, to enter sources, to use the cache.

A runner has no store: it asks its supervisor (`runners/child/asking.py`); the worker inside the caller's own process
asks its store itself (`worker/inline.py`). To user code both are the same.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from typing import TYPE_CHECKING, Any, Protocol

from holdfast.domain.asks import Verb
from holdfast.domain.errors import ConfigurationError
from holdfast.domain.jsonable import from_json, to_json
from holdfast.domain.record import NewRecord, Written
from holdfast.tasks.governing import Governed, SourceGuard
from holdfast.tasks.recording import listed_records, new_record, single_record

if TYPE_CHECKING:
    from holdfast.tasks.options import Duration

MAX_WAIT = 30.0


class Asking(Protocol):
    """The way to the engine. Any thread may ask, and several at once; what one job asks is done in that order."""

    def ask(self, verb: Verb, body: dict[str, Any], timeout: float | None = None) -> Any:
        """Wait for the answer. StoreUnavailable after the timeout; Cancel or LeaseLost should the job have to stop."""

    async def aask(self, verb: Verb, body: dict[str, Any], timeout: float | None = None) -> Any:
        """The same without holding up the event loop."""

    def tell(self, verb: Verb, body: dict[str, Any]) -> None:
        """Ask and not wait: nobody is there any more to hear the answer."""


class Records:
    """The part of a context that keeps records."""

    _asking: Asking | None

    def record(
        self, scope: str, source: str, data: Any, external_id: str | None = None, strength: float = 0.0
    ) -> Written:
        """Keep one thing that this job found; of those with one key the strongest stays. LeaseLost, and nothing is
        kept, if this attempt is over."""
        return self._write([new_record(scope, source, data, external_id, strength)])[0]

    async def arecord(
        self, scope: str, source: str, data: Any, external_id: str | None = None, strength: float = 0.0
    ) -> Written:
        return (await self._awrite([new_record(scope, source, data, external_id, strength)]))[0]

    def record_many(self, records: Iterable[Mapping[str, Any]]) -> list[Written]:
        """All of them or none; each a mapping of what `record` takes."""
        return self._write(listed_records(records))

    async def arecord_many(self, records: Iterable[Mapping[str, Any]]) -> list[Written]:
        return await self._awrite(listed_records(records))

    def upsert_single(self, scope: str, data: Any) -> Written:
        """Keep the one thing there is in this scope: the last one stays."""
        return self._write([single_record(scope, data)])[0]

    async def aupsert_single(self, scope: str, data: Any) -> Written:
        return (await self._awrite([single_record(scope, data)]))[0]

    def _write(self, records: list[NewRecord]) -> list[Written]:
        asking = self._engine()
        return _written(asking.ask(Verb.RECORDS, {"records": to_json(records)})) if records else []

    async def _awrite(self, records: list[NewRecord]) -> list[Written]:
        asking = self._engine()
        return _written(await asking.aask(Verb.RECORDS, {"records": to_json(records)})) if records else []

    def _engine(self) -> Asking:
        if self._asking is None:
            raise ConfigurationError("ctx.record works only inside a job that a worker runs")
        return self._asking


class Sources(Governed):
    """The part of a context that lets a job into sources."""

    def source(self, name: str, max_wait: Duration = MAX_WAIT) -> SourceGuard:
        """`with ctx.source("ebay") as source:` what is inside runs under the limits of that source, fleet-wide. It is
        waited for up to `max_wait`; then, or at once if it is known to take longer, the job is snoozed."""
        return SourceGuard(self, name, max_wait)


def _written(answer: Any) -> list[Written]:
    return [from_json(Written, one) for one in answer]
