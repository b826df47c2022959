"""Whether a verb's answers mean that a job can be claimed right now, so that somebody may be woken for it.

Only a hint hangs on it. A wrong yes costs an idle worker one look, a wrong no costs a job one polling interval.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from datetime import UTC, datetime

from holdfast.domain.alike import AlikeJobs
from holdfast.domain.answers import Operated, OperatorAnswer, Settled, Status
from holdfast.domain.job import Enqueued, NewJob
from holdfast.domain.lifecycle import Event

# A first crash and a first lost lease are due at once; later ones back off, which the answer does not tell.
_GIVEN_BACK = (Event.RELEASED, Event.CRASHED, Event.LEASE_LOST)


def by_enqueue(jobs: Sequence[NewJob], answers: Sequence[Enqueued]) -> bool:
    if isinstance(jobs, AlikeJobs):
        return is_due(jobs.like) and any(answer.created for answer in answers)
    return any(answer.created and is_due(job) for job, answer in zip(jobs, answers, strict=True))


def by_settle(answers: Iterable[Settled]) -> bool:
    return any(answer.status is Status.APPLIED and answer.event in _GIVEN_BACK for answer in answers)


def by_operator(answers: Iterable[OperatorAnswer]) -> bool:
    return any(answer.did is Operated.REQUEUED for answer in answers)


def is_due(job: NewJob) -> bool:
    return not job.delay and (job.run_after is None or job.run_after <= datetime.now(UTC))
