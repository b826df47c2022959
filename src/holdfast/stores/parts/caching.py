"""The response cache, in the store's own tables."""

from __future__ import annotations

from typing import Any

from holdfast.domain.answers import Beat
from holdfast.domain.sources import Cached
from holdfast.stores.database import ContentCheck, Database
from holdfast.stores.verbs import caching


class CachePart:
    database: Database

    def cached(self, source: str, key: str, lease: Beat | None = None) -> Cached | None:  # noqa: ARG002
        """Who has the database needs no lease for this."""
        return caching.get(self.database, source, key)

    def keep_cached(
        self,
        source: str,
        key: str,
        value: Any,
        ttl_seconds: float,
        lease: Beat | None = None,  # noqa: ARG002
    ) -> None:
        with ContentCheck(self.database, "value"):
            caching.put(self.database, source, key, value, ttl_seconds)

    def forget_cached(self, limit: int) -> int:
        """Drop what has expired; how many they were."""
        return caching.forget(self.database, limit)

    def clear_cache(self, source: str, key: str | None = None) -> int:
        return caching.clear(self.database, source, key)
