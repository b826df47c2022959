"""The chores that one process at a time does for the whole fleet. Another chore is another line here."""

from __future__ import annotations

from typing import TYPE_CHECKING, cast

from holdfast.artifacts.opening import open_artifacts
from holdfast.maintenance.checkpoints import checkpoints
from holdfast.maintenance.collecting import artifact_chore
from holdfast.maintenance.leftovers import leftovers
from holdfast.maintenance.minutes import minutes
from holdfast.maintenance.retention import Retention
from holdfast.ports import OfferStore, Store
from holdfast.wiring.redis import StreamOptions, stream_chore
from holdfast.wiring.rq import rq_chore

if TYPE_CHECKING:
    from holdfast.maintenance.chores import Chore


def fleet_chores(
    store: Store,
    *,
    holder: str,
    database_url: str,
    upkeep_seconds: float,
    artifacts: str | None,
    rq_url: str | None,
    rq_serializer: str,
    redis: StreamOptions | None,
) -> list[Chore]:
    """`holder` is who does them; `artifacts` is the place of this store's files, if there is one."""
    chores = Retention(lambda: store).chores(upkeep_seconds)
    chores.append(leftovers(lambda: store))
    chores.append(minutes(lambda: store, holder))
    if database_url.startswith("sqlite"):
        chores.append(checkpoints(lambda: store))
    if artifacts is not None:
        chores.append(artifact_chore(store, lambda: open_artifacts(artifacts)))
    if rq_url is not None:  # whoever has chores has opened the database itself
        chores.append(rq_chore(cast(OfferStore, store), rq_url, rq_serializer))
    if redis is not None:
        chores.append(stream_chore(cast(OfferStore, store), redis))
    return chores
