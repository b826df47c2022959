"""Remove what has been kept for long enough: finished jobs, the histories of pruned ones, and what is left over.

Four chores, so that none waits for another. Within one, the groups (queue and state) take turns batch by batch: a
queue with a million old jobs does not keep the others waiting.

retention   finished jobs, with their log lines and the rows of their artifacts; each leaves a `pruned` event
histories   the whole history of a pruned job, with its refusals; the audit log's watermark tells how far
leftovers   ticks of schedules, events of sources, refusals of jobs that nobody knows: as old as the oldest history
            that is kept
requests    claims that could be asked for again, once nobody will
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from typing import TYPE_CHECKING

from holdfast.domain.errors import is_away
from holdfast.domain.retention import Group, Kept, Rules
from holdfast.maintenance.chores import Chore

if TYPE_CHECKING:
    from holdfast.ports import UpkeepStore

PERIOD_SECONDS = 300.0
LEFTOVERS_PERIOD_SECONDS = 3600.0
REQUESTS_PERIOD_SECONDS = 60.0
# Longer than anybody asks for an answer that was lost: what was granted is under a lease, and leases end.
REQUESTS_KEPT_SECONDS = 900.0
BATCH = 500
PAGE = 1_000  # of refusals


class Retention:
    def __init__(self, store: Callable[[], UpkeepStore], batch: int = BATCH) -> None:
        self._store = store
        self._batch = batch

    def chores(self, period_seconds: float = PERIOD_SECONDS) -> list[Chore]:
        leftovers = LEFTOVERS_PERIOD_SECONDS * period_seconds / PERIOD_SECONDS
        return [
            Chore("retention", period_seconds, self.jobs),
            Chore("histories", period_seconds, self.histories),
            Chore("leftovers", leftovers, self.leftovers),
            Chore("requests", REQUESTS_PERIOD_SECONDS, self.requests),
        ]

    def jobs(self) -> Iterator[int]:
        store = self._store()

        def prune(group: Group) -> tuple[int, bool]:
            pruned = store.prune(group, self._batch)
            return len(pruned.ids), pruned.more

        yield from _in_turn(store, Kept.JOBS, prune)

    def histories(self) -> Iterator[int]:
        store = self._store()

        def retire(group: Group) -> tuple[int, bool]:
            retired = store.retire(group, self._batch)
            return retired.jobs, retired.more

        yield from _in_turn(store, Kept.HISTORIES, retire)

    def leftovers(self) -> Iterator[int]:
        store = self._store()
        keep = store.retention_rules().longest_history()
        if keep is None:
            return
        for forget in (store.forget_ticks, store.forget_source_events):
            gone = self._batch
            while gone == self._batch:
                gone = forget(keep, self._batch)
                yield gone
        after: str | None = None
        while True:
            gone, after = store.forget_refusals(keep, after, PAGE)
            yield gone
            if after is None:
                return

    def requests(self) -> Iterator[int]:
        store = self._store()
        gone = self._batch
        while gone == self._batch:
            gone = store.forget_claim_requests(REQUESTS_KEPT_SECONDS, self._batch)
            yield gone


def _in_turn(store: UpkeepStore, what: Kept, remove: Callable[[Group], tuple[int, bool]]) -> Iterator[int]:
    """A batch of each, again and again, until all are through. The rules are read anew for every round: who says
    "keep them" while a million is on its way out is heard. A group that cannot go (a foreign key of the user's holds
    it, say) is told of when the others are through."""
    groups = store.retention_due(what)
    problem: Exception | None = None
    while groups:
        left = []
        for group in groups:
            try:
                count, more = remove(group)
            except Exception as error:
                if is_away(error):
                    raise
                problem = problem or error
                continue
            if more and count:
                left.append(group)
            yield count
        rules = store.retention_rules() if left else Rules()
        groups = [Group(what, g.queue, g.state, rules.keep_seconds(what, g.queue, g.state)) for g in left]
    if problem is not None:
        raise problem
