"""The tables, by subject. Names are fixed: operators write SQL against them."""

from __future__ import annotations

from holdfast.stores.schema.access import access_refusals, claim_requests, tokens
from holdfast.stores.schema.activity import minutes
from holdfast.stores.schema.audit import PRUNED_QUEUE_POSTGRES, PRUNED_QUEUE_SQLITE, events, refusals, retired
from holdfast.stores.schema.base import in_states, metadata, still_in
from holdfast.stores.schema.fleet import tasks, workers
from holdfast.stores.schema.ledger import CLAIMABLE_SQL, JOB_RULES, POSTGRES_INDEXES, SOURCE_LANE, jobs
from holdfast.stores.schema.limits import SOURCE_RULES, SOURCE_TIMES, queues, source_events, source_holds, sources
from holdfast.stores.schema.output import artifacts, cache, logs, records
from holdfast.stores.schema.scheduling import schedule_ticks, schedules
from holdfast.stores.schema.upkeep import duties, meta, retention

__all__ = [
    "CLAIMABLE_SQL",
    "JOB_RULES",
    "POSTGRES_INDEXES",
    "PRUNED_QUEUE_POSTGRES",
    "PRUNED_QUEUE_SQLITE",
    "SOURCE_LANE",
    "SOURCE_RULES",
    "SOURCE_TIMES",
    "access_refusals",
    "artifacts",
    "cache",
    "claim_requests",
    "duties",
    "events",
    "in_states",
    "jobs",
    "logs",
    "meta",
    "metadata",
    "minutes",
    "queues",
    "records",
    "refusals",
    "retention",
    "retired",
    "schedule_ticks",
    "schedules",
    "source_events",
    "source_holds",
    "sources",
    "still_in",
    "tasks",
    "tokens",
    "workers",
]
