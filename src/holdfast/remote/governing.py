"""What a running job wants, over HTTP: records, sources, the cache. Each request shows the lease of its attempt, and an
answer that it is lost is raised: user code must not go on as if nothing had happened.

Everything here may arrive twice: an entry has a number, leaving again changes nothing, a record has a key and a value
in the cache is what it is. Only the answer may differ: of records that were written by a request whose answer was lost,
the second one says `existing`.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import fields
from typing import Any

from holdfast.domain.answers import Beat
from holdfast.domain.caching import check_place, checked_ttl, checked_value
from holdfast.domain.errors import ConfigurationError, LeaseLost, NotAllowed
from holdfast.domain.jsonable import to_json
from holdfast.domain.names import check_id, check_name, storable_text
from holdfast.domain.record import Kept, NewRecord, Written, check_records
from holdfast.domain.sources import Cached, Entered, Entry, Leaving, SourceDeclaration
from holdfast.domain.wire import attempt_id
from holdfast.remote.cleaning import LONGEST_CODE, NOBODY, label
from holdfast.remote.line import Line
from holdfast.remote.work import WORKER


class Governing:
    _line: Line
    _may_not_declare: bool  # this token is limited to queues: it is told of once

    def write_records(self, new: Sequence[NewRecord], lease: Beat | None = None) -> list[Written]:
        """All or nothing, so all of them go in one request."""
        records = [_named(record) for record, _data in check_records(new)]
        found = self._ask_under(lease, "records", "its records", {"records": records})["records"] if records else []
        return [Written(one["id"], one["dedupe_key"], Kept(one["kept"])) for one in found]

    def enter_source(self, lease: Beat, entry: Entry) -> Entered:
        check_name(entry.source, "source")
        found = self._ask_under(lease, "source/enter", f"source {entry.source}", _named(entry))
        return Entered(found["admitted"], found["retry_in"], found["why"])

    def leave_source(self, lease: Beat, leaving: Leaving) -> None:
        check_name(leaving.source, "source")
        code = storable_text(leaving.code, LONGEST_CODE)
        self._ask_under(lease, "source/leave", f"source {leaving.source}", {**_named(leaving), "code": code})

    def cached(self, source: str, key: str, lease: Beat | None = None) -> Cached | None:
        check_place(source, key)
        found = self._ask_under(lease, "cache/get", f"the cache of {source}", {"source": source, "key": key})
        return Cached(found["value"]) if found["found"] else None

    def keep_cached(self, source: str, key: str, value: Any, ttl_seconds: float, lease: Beat | None = None) -> None:
        check_place(source, key)
        checked_value(value)
        what = {"source": source, "key": key, "value": value, "ttl_seconds": checked_ttl(ttl_seconds)}
        self._ask_under(lease, "cache/put", f"the cache of {source}", what)

    def announce_sources(self, declared: Sequence[SourceDeclaration], worker: str = NOBODY) -> None:
        """A token that is limited to queues declares none; an error tells so once."""
        if not declared or self._may_not_declare:
            return
        try:
            self._line.post(f"{WORKER}/announce", {"worker_id": worker, "sources": [to_json(one) for one in declared]})
        except NotAllowed as error:
            self._may_not_declare = True
            names = ", ".join(source.name for source in declared)
            raise NotAllowed(f"the limits of sources were not announced: {names}: {error}") from None

    def _ask_under(self, lease: Beat | None, path: str, about: str, what: dict[str, Any]) -> Any:
        if lease is None:
            raise ConfigurationError(
                "over HTTP only a running job may do this, under its lease (ctx.record, ctx.source); elsewhere give a"
                " postgresql:// or sqlite:/// URL"
            )
        attempt = attempt_id(check_id(lease.job_id, "job_id"), lease.attempt)
        shown = {"worker_id": label(lease.worker), "attempt_id": attempt, "lease_token": lease.lease_token}
        answer = self._line.post(f"{WORKER}/{path}", {**shown, **what})
        if not answer["ok"]:
            raise LeaseLost(
                f"job {lease.job_id}, attempt {lease.attempt}: {about}: refused ({answer['reason']}), because the"
                " lease is no longer this attempt's; stop, the job is or will be run by somebody else"
            )
        return answer


def _named(value: NewRecord | Entry | Leaving) -> dict[str, Any]:
    return {item.name: getattr(value, item.name) for item in fields(value)}
