"""What running jobs ask for, done in the store: the same for a supervisor, whose runners ask over their sockets, and
for the worker in the caller's own process."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Any, assert_never

from holdfast.domain.answers import Beat
from holdfast.domain.asks import Verb
from holdfast.domain.errors import InvalidInput
from holdfast.domain.jsonable import from_json, to_json
from holdfast.domain.record import NewRecord
from holdfast.domain.sources import Entry, Leaving
from holdfast.ports import CacheStore, Store

MOST_TOGETHER = 500  # records of several asks in one transaction


@dataclass(frozen=True, slots=True)
class Caching:
    """Where answers of outside systems are kept, if they are; `ttl_seconds` where a job names no other."""

    store: Callable[[], CacheStore]
    is_enabled: bool = True
    ttl_seconds: float = 3600.0


class Serving:
    def __init__(self, store: Callable[[], Store], caching: Caching) -> None:
        self._store = store
        self._caching = caching

    def serve(self, lease: Beat, verb: Verb, body: dict[str, Any]) -> Any:
        """The answer, as JSON. InvalidInput for what makes no sense, whoever it was that asked."""
        try:
            return self._answer(lease, verb, body)
        except (KeyError, TypeError, AttributeError, ValueError) as error:
            if isinstance(error, InvalidInput):
                raise
            raise InvalidInput(str(verb), f"cannot be read ({type(error).__name__}: {error})") from error

    def write_together(self, lease: Beat, bodies: Sequence[dict[str, Any]]) -> list[Any]:
        """The records of several asks in one transaction: all of them or none."""
        portions = [_records(body) for body in bodies]
        written = iter(self._store().write_records([record for portion in portions for record in portion], lease))
        return [to_json([next(written) for _ in portion]) for portion in portions]

    def _answer(self, lease: Beat, verb: Verb, body: dict[str, Any]) -> Any:
        match verb:
            case Verb.RECORDS:
                return to_json(self._store().write_records(_records(body), lease))
            case Verb.ENTER:
                return to_json(self._store().enter_source(lease, from_json(Entry, body)))
            case Verb.LEAVE:
                return self._store().leave_source(lease, from_json(Leaving, body))
            case Verb.CACHED:
                return self._cached(lease, body["source"], body["key"])
            case Verb.KEEP_CACHED:
                return self._keep_cached(lease, body)
            case _ as never:
                assert_never(never)

    def _cached(self, lease: Beat, source: str, key: str) -> dict[str, Any]:
        enabled = self._caching.is_enabled
        found = self._caching.store().cached(source, key, lease) if enabled else None
        return {"enabled": enabled, "found": found is not None, "value": None if found is None else found.value}

    def _keep_cached(self, lease: Beat, body: dict[str, Any]) -> None:
        ttl = body["ttl_seconds"]
        if self._caching.is_enabled:
            self._caching.store().keep_cached(
                body["source"], body["key"], body["value"], self._caching.ttl_seconds if ttl is None else ttl, lease
            )


def _records(body: dict[str, Any]) -> list[NewRecord]:
    return [from_json(NewRecord, one) for one in body["records"]]
