"""The protocols at which the layers meet, by who asks.

A store is synchronous; one method is one verb is one transaction. `connection` on the enqueue verbs is the user's own
SQLAlchemy Connection or Session, psycopg connection, or (for the async forms) AsyncSession or AsyncConnection: the job
then exists if and only if the user's transaction commits.
"""

from __future__ import annotations

from holdfast.ports.artifacts import ArtifactStore, StoredFile
from holdfast.ports.clients import EnqueueStore
from holdfast.ports.control_planes import TokenStore
from holdfast.ports.operators import OperatorStore
from holdfast.ports.queries import FleetQueries, JobQueries
from holdfast.ports.running_jobs import CacheStore, RecordStore, SourceStore
from holdfast.ports.store import Store
from holdfast.ports.transports import OfferStore
from holdfast.ports.upkeep import ActivityStore, ArtifactRecordStore, UpkeepStore
from holdfast.ports.workers import WorkStore

__all__ = [
    "ActivityStore",
    "ArtifactRecordStore",
    "ArtifactStore",
    "CacheStore",
    "EnqueueStore",
    "FleetQueries",
    "JobQueries",
    "OfferStore",
    "OperatorStore",
    "RecordStore",
    "SourceStore",
    "Store",
    "StoredFile",
    "TokenStore",
    "UpkeepStore",
    "WorkStore",
]
