"""The store on SQL: the whole port, over either dialect. Each method is one verb; the verbs live in `verbs/`.

`claimable` is called after a commit of the store's own that leaves a job which can be claimed at once; `before_close`
before the connections go.
"""

from __future__ import annotations

from collections.abc import Callable

from holdfast.stores.database import Database
from holdfast.stores.parts.activity import ActivityPart
from holdfast.stores.parts.caching import CachePart
from holdfast.stores.parts.clients import ClientPart
from holdfast.stores.parts.operators import OperatorPart
from holdfast.stores.parts.queries import QueryPart
from holdfast.stores.parts.records import RecordPart
from holdfast.stores.parts.schedules import SchedulePart
from holdfast.stores.parts.sources import SourcePart
from holdfast.stores.parts.tokens import TokenPart
from holdfast.stores.parts.transports import TransportPart
from holdfast.stores.parts.upkeep import UpkeepPart
from holdfast.stores.parts.workers import WorkerPart
from holdfast.stores.verbs.claiming import Claiming


def _nobody() -> None:
    """Nobody waits to be told."""


class SqlStore(
    ClientPart,
    WorkerPart,
    TransportPart,
    OperatorPart,
    UpkeepPart,
    SchedulePart,
    QueryPart,
    TokenPart,
    ActivityPart,
    SourcePart,
    RecordPart,
    CachePart,
):
    def __init__(
        self,
        database: Database,
        claimable: Callable[[], None] | None = None,
        before_close: Callable[[], None] | None = None,
    ) -> None:
        self.database = database
        self._claiming = Claiming(database)
        self._claimable = claimable or _nobody
        self._before_close = before_close or _nobody

    def close(self) -> None:
        self._before_close()
        self.database.close()
