"""What a credential that is limited to queues may announce.

What is announced of a task decides where everybody's jobs of that task go, and a schedule makes jobs by itself. So
whoever is limited to queues speaks of tasks and schedules of these queues alone, and takes none away from another.
The limits of a source are for all queues at once: whoever is limited to some does not set them.
Who comes first may have a name: whoever is not limited can always announce it as it should be.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import replace
from typing import Any

from holdfast.domain.job import DEFAULT_QUEUE
from holdfast.domain.manifest import TaskInfo
from holdfast.domain.schedule import Declaration
from holdfast.domain.sources import SourceDeclaration
from holdfast.ports import Store
from holdfast.serve.auth import Identity
from holdfast.serve.problems import Refused

Tasks = Mapping[str, TaskInfo]


def may_announce(store: Store, tasks: Sequence[TaskInfo], caller: Identity) -> None:
    """403 unless each of the tasks is its own."""
    if caller.queues is None or not tasks:
        return
    known = _announced(store)
    for task in tasks:
        if task.defaults.get("webhook") is not None:
            raise _refused(f"task {task.name!r}: a token that is limited to queues announces no webhook")
        caller.check_queues([_queue_of(task)])
        if task.name in known and not caller.may_use(_queue_of(known[task.name])):
            raise _refused(f"task {task.name!r} is announced for a queue that this token may not use")


def may_declare(sources: Sequence[SourceDeclaration], caller: Identity) -> None:
    """403 unless it is limited to no queues: a source is shared by jobs of all of them."""
    if caller.queues is not None and sources:
        names = ", ".join(repr(source.name) for source in sources[:5])
        raise _refused(
            f"sources ({names}) are for all queues, and this token is limited to some; it may not set limits"
        )


def own_schedules(
    store: Store, declared: Sequence[Declaration], tasks: Sequence[TaskInfo], caller: Identity
) -> list[Declaration]:
    """403 unless each of the schedules is its own. `tasks` are announced with them.

    The queue is written into each: what somebody announces later of the task must not take its jobs elsewhere.
    """
    if caller.queues is None or not declared:
        return list(declared)
    known = _announced(store)
    stored = {found.name: _queue_in(found.job, found.task, known) for found in store.schedules()}
    taken = {name for name, queue in stored.items() if not caller.may_use(queue)}
    taken |= {failure.schedule for failure in store.unreadable_schedules()}
    to_be = {**known, **{task.name: task for task in tasks}}
    return [_own_schedule(item, to_be, taken, caller) for item in declared]


def _own_schedule(item: Declaration, tasks: Tasks, taken: set[str], caller: Identity) -> Declaration:
    queue = _queue_in(item.job, item.task, tasks)
    caller.check_queues([queue])
    if item.name in taken:
        raise _refused(f"schedule {item.name!r} is stored for a queue that this token may not use")
    return replace(item, job={**item.job, "queue": queue})


def _announced(store: Store) -> Tasks:
    return {task.name: task for task in store.announced_tasks()}


def _queue_of(task: TaskInfo | None) -> str:
    return DEFAULT_QUEUE if task is None else str(task.defaults.get("queue", DEFAULT_QUEUE))


def _queue_in(job: Mapping[str, Any], task: str, tasks: Tasks) -> str:
    """Of the jobs of a schedule."""
    return str(job["queue"]) if "queue" in job else _queue_of(tasks.get(task))


def _refused(detail: str) -> Refused:
    return Refused(403, "Not for this token", detail)
