"""Records outside any job: `app.records` writes, reads and deletes them. Inside a job it is `ctx.record`, whose records
are refused once its lease is lost."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Mapping
from typing import TYPE_CHECKING, Any

from holdfast.tasks.recording import listed_records, new_record, single_record

if TYPE_CHECKING:
    from holdfast.domain.record import Record, Written
    from holdfast.domain.views import Page
    from holdfast.ports import RecordStore

PAGE = 1_000


class RecordBook:
    """`store` gives the store as it is now: an app may change it."""

    def __init__(self, store: Callable[[], RecordStore]) -> None:
        self._store = store

    def record(
        self, scope: str, source: str, data: Any, external_id: str | None = None, strength: float = 0.0
    ) -> Written:
        """Keep one thing; of those with one key the strongest stays."""
        return self._store().write_records([new_record(scope, source, data, external_id, strength)])[0]

    def record_many(self, records: Iterable[Mapping[str, Any]]) -> list[Written]:
        """All of them or none, up to a thousand; each a mapping of what `record` takes."""
        return self._store().write_records(listed_records(records))

    def upsert_single(self, scope: str, data: Any) -> Written:
        """Keep the one thing there is in this scope: the last one stays."""
        return self._store().write_records([single_record(scope, data)])[0]

    def query(
        self,
        *,
        scope: str | None = None,
        source: str | None = None,
        job_id: str | None = None,
        dedupe_key: str | None = None,
        limit: int = 50,
        after: str | None = None,
    ) -> Page[Record]:
        """The newest first, page by page."""
        return self._store().records(
            scope=scope, source=source, job_id=job_id, dedupe_key=dedupe_key, limit=limit, after=after
        )

    def every(self, **wanted: Any) -> Iterator[Record]:
        """All that `query` would find, page after page."""
        after: str | None = None
        while True:
            page = self._store().records(limit=PAGE, after=after, **wanted)
            yield from page.items
            after = page.after
            if after is None:
                return

    def get(self, record_id: str) -> Record:
        return self._store().record(record_id)

    def delete(self, scope: str, source: str | None = None, dedupe_key: str | None = None) -> int:
        """How many they were."""
        return self._store().delete_records(scope, source, dedupe_key)
