"""Enqueueing over HTTP. Every job gets its id here, so that asking again never makes a second one."""

from __future__ import annotations

import time
from collections.abc import Callable, Sequence
from typing import Any

from holdfast.domain.errors import ConfigurationError, StoreUnavailable
from holdfast.domain.job import Enqueued, NewJob
from holdfast.domain.jsonable import new_job_to_json
from holdfast.domain.lifecycle import State
from holdfast.remote.line import Line

JOBS = "/api/v1/jobs"
TRIES = 4
FIRST_PAUSE_SECONDS = 0.2


class Enqueueing:
    """`_new_ids` makes so many ids, in order."""

    _line: Line
    _new_ids: Callable[[int], list[str]]

    def enqueue(self, job: NewJob, connection: Any = None) -> Enqueued:
        _refuse(connection)
        [body] = self._bodies([job])
        answer, asked_twice = self._ask(JOBS, body)
        return _enqueued(answer, job, body, asked_twice)

    def enqueue_many(self, jobs: Sequence[NewJob], connection: Any = None) -> list[Enqueued]:
        """All or nothing, so all of them go in one request."""
        _refuse(connection)
        if not jobs:
            return []
        jobs = list(jobs)  # each is looked at again
        bodies = self._bodies(jobs)
        answer, asked_twice = self._ask(f"{JOBS}/batch", {"jobs": bodies})
        found = zip(answer["jobs"], jobs, bodies, strict=True)
        return [_enqueued(one, job, body, asked_twice) for one, job, body in found]

    def _bodies(self, jobs: Sequence[NewJob]) -> list[dict[str, Any]]:
        return [
            {"id": own_id, **new_job_to_json(job)} for own_id, job in zip(self._new_ids(len(jobs)), jobs, strict=True)
        ]

    def _ask(self, path: str, body: Any) -> tuple[Any, bool]:
        """A control plane that is being restarted is back in a moment: nobody's enqueue should fail for that."""
        pause = FIRST_PAUSE_SECONDS
        for tried in range(TRIES):
            try:
                return self._line.post(path, body, once=True), tried > 0
            except StoreUnavailable:
                if tried == TRIES - 1:
                    raise
            time.sleep(pause)
            pause *= 2
        raise AssertionError("unreachable")


def _enqueued(answer: dict[str, Any], job: NewJob, body: dict[str, Any], asked_twice: bool) -> Enqueued:
    """A job that is there because the first try made it was made by us: nobody else knows an id that we chose."""
    ours = asked_twice and job.id is None and answer["id"] == body["id"]
    return Enqueued(answer["id"], ours or answer["created"], State(answer["state"]))


def _refuse(connection: Any) -> None:
    if connection is not None:
        raise ConfigurationError(
            "connection= needs the database itself: over HTTP a job cannot be part of your transaction. Give"
            ' App("postgresql://…"), or enqueue without connection= after your commit.'
        )
