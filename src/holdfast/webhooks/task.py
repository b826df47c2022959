"""The engine's own task: every worker can run it beside those of its app.

It is of a kind that the worker runs anyway, so that no process is started for its sake: a coroutine where all of an
app's tasks are coroutines, else a function. What speaks HTTP is imported when there is something to deliver.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from holdfast.domain.errors import ConfigurationError
from holdfast.domain.manifest import Kind
from holdfast.domain.webhook import DELIVERY_QUEUE, DELIVERY_TASK
from holdfast.tasks.context import Context
from holdfast.tasks.definition import define_function
from holdfast.tasks.flow import Permanent
from holdfast.tasks.task import AnyTask, AsyncTask, FunctionTask

_OPTIONS: dict[str, Any] = {"queue": DELIVERY_QUEUE}


def deliveries(tasks: Mapping[str, AnyTask]) -> dict[str, AnyTask]:
    """What a worker with these tasks can run besides; of an app without any, nothing."""
    if not tasks:
        return {}
    if all(task.kind is Kind.ASYNC for task in tasks.values()):
        return {DELIVERY_TASK: AsyncTask(define_function(adeliver, DELIVERY_TASK, _OPTIONS))}
    return {DELIVERY_TASK: FunctionTask(define_function(deliver, DELIVERY_TASK, _OPTIONS))}


def deliver(context: Context, url: str, event: str, job: dict[str, Any]) -> dict[str, int]:
    from holdfast.webhooks.delivering import DeliveryRefused, Sender

    try:
        sender = Sender.from_environment()
    except ConfigurationError as error:
        raise Permanent(DeliveryRefused(str(error))) from None
    return {"status": sender.deliver(url, event, job, context.job.id, context.job.attempt)}


async def adeliver(context: Context, url: str, event: str, job: dict[str, Any]) -> dict[str, int]:
    import asyncio

    return await asyncio.to_thread(deliver, context, url, event, job)
