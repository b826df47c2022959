"""Records: the deduplicated output of jobs."""

from __future__ import annotations

from collections.abc import Sequence

from holdfast.domain.answers import Beat
from holdfast.domain.record import NewRecord, Record, Written
from holdfast.domain.views import Page
from holdfast.stores.database import ContentCheck, Database
from holdfast.stores.verbs import records


class RecordPart:
    database: Database

    def write_records(self, new: Sequence[NewRecord], lease: Beat | None = None) -> list[Written]:
        """All or nothing. With a lease: only if it is still held, and as written by its attempt."""
        with ContentCheck(self.database, "records"):
            return records.write(self.database, new, lease)

    def records(
        self,
        *,
        scope: str | None = None,
        source: str | None = None,
        job_id: str | None = None,
        dedupe_key: str | None = None,
        limit: int = 50,
        after: str | None = None,
    ) -> Page[Record]:
        return records.listed(self.database, scope, source, job_id, dedupe_key, limit, after)

    def record(self, record_id: str) -> Record:
        return records.one(self.database, record_id)

    def delete_records(self, scope: str, source: str | None = None, dedupe_key: str | None = None) -> int:
        return records.delete(self.database, scope, source, dedupe_key)
