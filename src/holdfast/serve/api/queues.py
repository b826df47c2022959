"""Queues: see, pause, resume, limit. A queue's name may contain anything, slashes too."""

from __future__ import annotations

from typing import Annotated

from fastapi import APIRouter
from pydantic import Field

from holdfast.domain.views import QueueSettings
from holdfast.ports import Store
from holdfast.serve.api.access import Client, Reader
from holdfast.serve.api.fleet_views import QueueSettingsView, QueuesView, QueueView
from holdfast.serve.api.values import Form, GivenInteger, NamePath
from holdfast.serve.body import StrictRoute
from holdfast.serve.plane import PlaneDep
from holdfast.serve.problems import problems

router = APIRouter(prefix="/queues", tags=["queues"], route_class=StrictRoute, responses=problems(404))
MOST_RUNNING = 1_000_000


class LimitForm(Form):
    max_running: Annotated[GivenInteger, Field(ge=0, le=MOST_RUNNING)] | None


@router.get("")
async def list_queues(plane: PlaneDep, identity: Reader) -> QueuesView:
    """Every queue that has jobs, or of which an operator has said something."""
    found = await plane.reads.call(lambda store: store.queues())
    return QueuesView(queues=[QueueView.model_validate(queue) for queue in found if identity.may_use(queue.name)])


@router.post("/{name:path}/pause")
async def pause_queue(plane: PlaneDep, identity: Client, name: NamePath) -> QueueSettingsView:
    """Nothing of it is claimed any more; what runs, runs on."""
    identity.check_queues([name])

    def pause(store: Store) -> QueueSettings:
        store.pause_queue(name)
        return store.queue_settings(name)

    return QueueSettingsView.model_validate(await plane.writes.call(pause))


@router.post("/{name:path}/resume")
async def resume_queue(plane: PlaneDep, identity: Client, name: NamePath) -> QueueSettingsView:
    identity.check_queues([name])

    def resume(store: Store) -> QueueSettings:
        store.resume_queue(name)
        return store.queue_settings(name)

    return QueueSettingsView.model_validate(await plane.writes.call(resume))


@router.put("/{name:path}/limit", responses=problems(413))
async def limit_queue(plane: PlaneDep, identity: Client, name: NamePath, form: LimitForm) -> QueueSettingsView:
    """At most so many of its jobs run at once, in the whole fleet; null for no limit."""
    identity.check_queues([name])

    def limit(store: Store) -> QueueSettings:
        store.limit_queue(name, form.max_running)
        return store.queue_settings(name)

    return QueueSettingsView.model_validate(await plane.writes.call(limit))
