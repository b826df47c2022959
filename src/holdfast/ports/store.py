"""All of it together: what a database is opened as."""

from __future__ import annotations

from typing import Protocol

from holdfast.ports.clients import EnqueueStore
from holdfast.ports.control_planes import TokenStore
from holdfast.ports.operators import OperatorStore
from holdfast.ports.queries import FleetQueries, JobQueries
from holdfast.ports.running_jobs import CacheStore, RecordStore, SourceStore
from holdfast.ports.upkeep import ActivityStore, ArtifactRecordStore, UpkeepStore
from holdfast.ports.workers import WorkStore


class Store(
    EnqueueStore,
    WorkStore,
    OperatorStore,
    JobQueries,
    FleetQueries,
    UpkeepStore,
    ArtifactRecordStore,
    TokenStore,
    ActivityStore,
    SourceStore,
    CacheStore,
    RecordStore,
    Protocol,
):
    """The whole port."""

    def close(self) -> None: ...
