"""What operators do to jobs, queues and dead letters."""

from __future__ import annotations

from collections.abc import Callable, Sequence

from holdfast.domain.answers import OperatorAnswer
from holdfast.domain.job import (
    Enqueued,
    Job,
)
from holdfast.domain.lifecycle import State
from holdfast.domain.retention import Pruned
from holdfast.domain.views import (
    DeadCount,
    DeadGroups,
    Page,
)
from holdfast.stores import claimable as claimable_now
from holdfast.stores.database import Database
from holdfast.stores.statements import limits
from holdfast.stores.verbs import (
    dead,
    operating,
    replaying,
    retaining,
)
from holdfast.stores.verbs.claiming import Claiming
from holdfast.stores.verbs.dead_groups import dead_groups


class OperatorPart:
    database: Database
    _claiming: Claiming
    _claimable: Callable[[], None]

    def cancel(self, job_ids: Sequence[str]) -> list[OperatorAnswer]:
        return operating.cancel(self.database, job_ids)

    def requeue(self, job_ids: Sequence[str]) -> list[OperatorAnswer]:
        answers = operating.requeue(self.database, job_ids)
        if claimable_now.by_operator(answers):
            self._claimable()
        return answers

    def replay(self, job_id: str, new_id: str | None = None) -> Enqueued:
        answer = replaying.replay(self.database, job_id, new_id)
        if answer.created:
            self._claimable()
        return answer

    def replays(self, job_id: str) -> list[Job]:
        """The jobs that ran this one's spec again, the oldest first."""
        return replaying.replays(self.database, job_id)

    def pause_queue(self, name: str) -> None:
        operating.set_queue(self.database, limits.PAUSE_QUEUE, name)

    def resume_queue(self, name: str) -> None:
        operating.set_queue(self.database, limits.RESUME_QUEUE, name)

    def limit_queue(self, name: str, max_running: int | None) -> None:
        operating.set_queue(self.database, limits.LIMIT_QUEUE, name, max_running=max_running)
        self._claiming.limits_changed()

    def dead(
        self, *, task: str | None = None, queue: str | None = None, limit: int = 50, after: str | None = None
    ) -> Page[Job]:
        return dead.dead(self.database, task, queue, limit, after)

    def dead_ids(
        self,
        *,
        task: str | None = None,
        queue: str | None = None,
        older_than: float | None = None,
        limit: int = 500,
        after: str | None = None,
    ) -> list[str]:
        return dead.dead_ids(self.database, task, queue, older_than, limit, after)

    def dead_counts(
        self, *, task: str | None = None, queue: str | None = None, older_than: float | None = None
    ) -> list[DeadCount]:
        return dead.dead_counts(self.database, task, queue, older_than)

    def dead_groups(self, queues: Sequence[str] | None = None, most: int = 10_000) -> DeadGroups:
        """By task, error code and message, the largest first; of the newest `most`."""
        return dead_groups(self.database, queues, most)

    def purge(self, job_ids: Sequence[str], older_than: float = 0.0) -> Pruned:
        """Delete failed jobs; their histories stay, and end in `pruned`."""
        return retaining.purge(self.database, job_ids, State.FAILED, older_than)
