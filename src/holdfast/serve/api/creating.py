"""Make jobs out of what clients send, with the defaults of the tasks that workers have announced."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from holdfast.domain.errors import Conflict, InvalidInput, TooLarge
from holdfast.domain.job import Enqueued, NewJob
from holdfast.domain.manifest import TaskInfo, defaults_of
from holdfast.ports import Store
from holdfast.serve.api.access import without_names
from holdfast.serve.api.job_forms import NewJobForm
from holdfast.serve.auth import Identity
from holdfast.tasks.tracing import enqueueing


def create(
    store: Store, identity: Identity, form: NewJobForm, lease_seconds: float, traceparent: str | None = None
) -> Enqueued:
    """`traceparent` is the request's; what the form says of its own counts before it."""
    defaults = defaults_of(store.announced(form.task), lease_seconds)
    job = NewJob.from_options({**defaults, **form.options(), **_own(identity)})
    identity.check_queues([job.queue])
    with without_names(identity), enqueueing([job], traceparent) as sent:
        answer = store.enqueue(sent.jobs[0])
        sent.answered([answer])
        return answer


def create_all(
    store: Store,
    identity: Identity,
    forms: Sequence[NewJobForm],
    lease_seconds: float,
    traceparent: str | None = None,
) -> list[Enqueued]:
    """All or nothing; a problem says which of them it is about."""
    known = _announced(store, {form.task for form in forms})
    jobs = []
    for number, form in enumerate(forms):
        defaults = defaults_of(known.get(form.task), lease_seconds)
        jobs.append(_numbered(number, {**defaults, **form.options(), **_own(identity)}))
    identity.check_queues({job.queue for job in jobs})
    with without_names(identity), enqueueing(jobs, traceparent) as sent:
        answers = store.enqueue_many(sent.jobs)
        sent.answered(answers)
        return answers


def _own(identity: Identity) -> dict[str, Any]:
    """Nobody gets a job in answer that is not there for him."""
    return {} if identity.queues is None else {"answered_by": identity.queues}


def _announced(store: Store, names: set[str]) -> dict[str, TaskInfo]:
    if len(names) == 1:
        found = store.announced(next(iter(names)))
        return {} if found is None else {found.name: found}
    return {task.name: task for task in store.announced_tasks()} if names else {}


def _numbered(number: int, options: dict[str, Any]) -> NewJob:
    try:
        return NewJob.from_options(options)
    except Conflict:
        raise
    except TooLarge as error:
        raise TooLarge(f"jobs.{number}.{error.field}", error.rule, error.limit_bytes) from None
    except InvalidInput as error:
        raise InvalidInput(f"jobs.{number}.{error.field}", error.rule) from None
