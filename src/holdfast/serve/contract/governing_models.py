"""The bodies of what a job wants while it runs: to write records, to enter sources, to use the cache.

Each shows the lease of its attempt. `ok: false` with a `reason` says that the lease is not, or no longer, its own."""

from __future__ import annotations

from typing import Annotated, Any

from pydantic import Field

from holdfast.domain.answers import Reason
from holdfast.domain.caching import LONGEST_TTL_SECONDS, MAX_CACHE_KEY
from holdfast.domain.names import MAX_NAME
from holdfast.domain.record import MAX_KEY, MAX_RECORDS, Kept
from holdfast.domain.sources import End
from holdfast.serve.contract.models import LARGEST, AttemptId, Body, Name, Seconds, Secret


class UnderLease(Body):
    worker_id: Name
    attempt_id: AttemptId
    lease_token: Secret


class LeaseAnswer(Body):
    ok: bool
    reason: Reason | None = Field(None, description="Why the lease is none: stop the work.")


# records


class RecordBody(Body):
    scope: Name
    source: str = Field(
        "", max_length=MAX_NAME, description="Left out only with an `external_id`, a key of your own, or `replace`."
    )
    data: Any
    external_id: Name | None = None
    strength: float = Field(
        0.0, allow_inf_nan=False, description="On a key that is there already the higher one stays."
    )
    dedupe_key: Annotated[str, Field(min_length=1, max_length=MAX_KEY)] | None = Field(
        None,
        description="Left out: made from `external_id`, or from fields of `data`, as in Python. Must agree with"
        " `external_id`, if there is one.",
    )
    replace: bool = Field(
        False,
        description="The last one stays, whatever the strengths. Without `external_id`, `dedupe_key` and"
        " `source`: the only record of its scope. With a `source` alone it is refused.",
    )


class RecordsRequest(UnderLease):
    records: list[RecordBody] = Field(min_length=1, max_length=MAX_RECORDS)


class WrittenBody(Body):
    id: str
    dedupe_key: str
    kept: Annotated[Kept, Field(strict=False)]


class RecordsAnswer(LeaseAnswer):
    records: list[WrittenBody]


# sources


class EnterRequest(UnderLease):
    source: Name
    number: int = Field(
        ge=0, le=LARGEST, description="Counts the entries of the attempt: the same one sent again enters once."
    )
    prepaid: bool = Field(
        False,
        description="The first entry of a job into the source that it was enqueued with, which its claim has paid.",
    )


class EnterAnswer(LeaseAnswer):
    admitted: bool
    retry_in: float = Field(description="If not admitted: the seconds after which to ask again.")
    why: str = Field(description="rate, concurrency, breaker, paused, disabled or busy; empty when admitted.")


class LeaveRequest(UnderLease):
    source: Name
    number: int = Field(ge=0, le=LARGEST)
    end: Annotated[End, Field(strict=False)] = End.NOTHING
    code: str = Field("", max_length=10_000, description="Of the error, if it failed.")
    retryable: bool = True
    retry_after: Seconds = Field(0.0, description="If throttled: the seconds for which it wants to be left alone.")


# the cache


class CacheGetRequest(UnderLease):
    source: Name
    key: Annotated[str, Field(min_length=1, max_length=MAX_CACHE_KEY)]


class CachePutRequest(CacheGetRequest):
    value: Any
    ttl_seconds: Annotated[float, Field(gt=0, le=LONGEST_TTL_SECONDS, allow_inf_nan=False)]


class CachedAnswer(LeaseAnswer):
    found: bool
    value: Any = None
