"""A claim under limits: look without locks, lock what the chosen jobs need, count, claim. One transaction.

A look may bring less than it seems: a source or queue that somebody else has locked is theirs for the moment, one that
has no more room is used up, and a job may be locked by somebody. Then the claim looks again, with those names left out,
and gets what lies behind them; what it has claimed before is not there any more. Every look takes in twice as many
lanes as the one before: where each has little to give, a large claim needs many.
"""

from __future__ import annotations

import json
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, field, replace
from itertools import chain, islice

from holdfast.domain.admission import SourceStanding
from holdfast.stores.database import CursorTransaction, Row
from holdfast.stores.statements import admission
from holdfast.stores.statements import look as sql
from holdfast.stores.statements.words import POSTGRES, Statement
from holdfast.stores.verbs import sqlite_walk
from holdfast.stores.verbs.looking import Candidate, Looking

MOST_LOOKS = 8


@dataclass(slots=True)
class Admission:
    """What the limits let in, while their rows are locked: how many more of a source (None: any number) and of a queue.
    `busy`: somebody else has one of them."""

    sources: dict[str, int | None] = field(default_factory=dict)
    queues: dict[str, int] = field(default_factory=dict)
    metered: set[str] = field(default_factory=set)  # sources that have a rate
    busy: bool = False
    cut: bool = False  # there were more lanes than were looked at

    def lock(self, transaction: CursorTransaction, jobs: Sequence[Candidate]) -> None:
        """Their limits, as far as they are not locked yet; then count, on a fresh snapshot. What is not to be had
        admits nothing."""
        queues = {job.queue for job in jobs if job.queue_limited}
        self._lock_queues(transaction, sorted(queues - self.queues.keys()))
        sources = {job.source: job for job in jobs if job.source_limited and job.source not in self.sources}
        self._lock_sources(transaction, sorted(name for name, job in sources.items() if job.room is None))
        self.sources.update({name: job.room for name, job in sources.items() if job.room is not None})
        self.metered.update(name for name, job in sources.items() if job.metered)

    def _lock_sources(self, transaction: CursorTransaction, names: list[str]) -> None:
        if not names:
            return
        self.sources.update(dict.fromkeys(names, 0))
        locked = transaction.rows(admission.LOCK_SOURCES, _named(names))
        for *columns, in_use, probes in locked:
            standing = SourceStanding(*columns)
            self.sources[standing.name] = standing.allowance(in_use, probes)
            if standing.level is not None:
                self.metered.add(standing.name)
        self.busy |= len(locked) < len(names)

    def _lock_queues(self, transaction: CursorTransaction, names: list[str]) -> None:
        if not names:
            return
        limits = {row[0]: row[1] for row in transaction.rows(admission.LOCK_QUEUES, _named(names))}
        running = _counts(transaction, admission.RUNNING_BY_QUEUE, list(limits))
        self.queues.update({name: max(0, limits.get(name, 0) - sum(running.get(name, ()))) for name in names})
        self.busy |= len(limits) < len(names)

    def takes(self, job: Candidate) -> bool:
        """Whether there is room for it; if so, that room is taken."""
        in_source = self.sources[job.source] if job.source_limited else None
        in_queue = self.queues[job.queue] if job.queue_limited else None
        if in_source == 0 or in_queue == 0:
            return False
        if in_source is not None:
            self.sources[job.source] = in_source - 1
        if in_queue is not None:
            self.queues[job.queue] = in_queue - 1
        return True

    def gives_back(self, job: Candidate) -> None:
        in_source = self.sources.get(job.source)
        if job.source_limited and in_source is not None:
            self.sources[job.source] = in_source + 1
        if job.queue_limited:
            self.queues[job.queue] += 1

    @property
    def used_up(self) -> frozenset[str]:
        return frozenset(name for name, left in self.sources.items() if left == 0)

    @property
    def full(self) -> frozenset[str]:
        return frozenset(name for name, left in self.queues.items() if left == 0)


Take = Callable[[Sequence[str], Admission], list[Row]]  # claims these jobs, under these locks; those that it could


def claim_admitted(
    transaction: CursorTransaction, looking: Looking, limit: int, take: Take
) -> tuple[list[Row], Admission]:
    """At most `limit` rows, and what the limits had to say. The transaction has begun with `look.STEADY`."""
    admitted = Admission()
    found: list[Row] = []
    for _ in range(MOST_LOOKS):
        candidates = look(transaction, looking)
        found += take_admitted(transaction, candidates, limit - len(found), admitted, take)
        closed, shut = admitted.used_up, admitted.full
        admitted.cut |= any(job.cut for job in candidates)
        is_all = len(candidates) < looking.window and not admitted.cut
        if len(found) >= limit or not candidates or (is_all and closed <= looking.closed and shut <= looking.shut):
            break
        last = candidates[-1]
        after = (last.task, last.source)
        looking = replace(looking, closed=closed, shut=shut, after=after, lanes=looking.lanes * 2)
    return found, admitted


def take_admitted(
    transaction: CursorTransaction, candidates: Sequence[Candidate], limit: int, admitted: Admission, take: Take
) -> list[Row]:
    """A job that somebody has locked takes nobody's place: one that had to stand back for it gets that."""
    found: list[Row] = []
    left, stood_back = iter(candidates), list[Candidate]()
    while len(found) < limit:
        chosen, refused = _choose(transaction, left, limit - len(found), admitted)
        if not chosen:
            break
        stood_back += refused
        taken = take([job.id for job in chosen], admitted)
        ids = {row[0] for row in taken}
        missed = [job for job in chosen if job.id not in ids]
        for job in missed:
            admitted.gives_back(job)
        if missed:
            left, stood_back = chain(stood_back, left), []
        found += taken
    return found


def _choose(
    transaction: CursorTransaction, left: Iterator[Candidate], wanted: int, admitted: Admission
) -> tuple[list[Candidate], list[Candidate]]:
    """The next of them that are let in, and those for which there was no room. Locked are just the limits of those
    that are about to be chosen."""
    chosen: list[Candidate] = []
    refused: list[Candidate] = []
    while len(chosen) < wanted:
        some = list(islice(left, wanted - len(chosen)))
        if not some:
            break
        admitted.lock(transaction, some)
        for job in some:
            (chosen if admitted.takes(job) else refused).append(job)
    return chosen, refused


def look(transaction: CursorTransaction, looking: Looking) -> list[Candidate]:
    if transaction.dialect != POSTGRES:
        return sqlite_walk.walk(transaction, looking)
    statement = sql.LOOK if looking.queues is not None else sql.LOOK_ALL_QUEUES
    names = {"closed": json.dumps(list(looking.closed)), "shut": json.dumps(list(looking.shut))}
    found = [Candidate(*row) for row in transaction.rows(statement, {**walk_parameters(looking), **names})]
    cut = next((job for job in found if job.cut), None)
    if cut is None:
        return found
    # What comes after that priority must not get ahead of the lanes of it that were not looked at.
    places = [(job.queue, job.priority) for job in found]
    return found[: len(places) - places[::-1].index((cut.queue, cut.priority))]


def again_in(transaction: CursorTransaction, looking: Looking) -> float | None:
    """When time alone lets in something that waits now: the end of a pause, a token."""
    if transaction.dialect != POSTGRES:
        found = sqlite_walk.waiting(transaction, looking)
    else:
        statement = sql.WAITING if looking.queues is not None else sql.WAITING_ALL_QUEUES
        found = transaction.rows(statement, walk_parameters(looking))
    seconds = [SourceStanding(*row).opens_in for row in found]
    return min((each for each in seconds if each is not None), default=None)


def walk_parameters(looking: Looking) -> dict[str, object]:
    parameters: dict[str, object] = {
        "window": looking.window,
        "lanes": looking.lanes,
        "tasks": None if looking.tasks is None else json.dumps(looking.tasks),
        "after_task": looking.after[0],
        "after_source": looking.after[1],
    }
    if looking.queues is not None:
        parameters["queues"] = json.dumps(looking.queues)
    return parameters


def _named(names: list[str]) -> dict[str, str]:
    return {"names": json.dumps(names)}


def _counts(transaction: CursorTransaction, statement: Statement, names: list[str]) -> dict[str, Sequence[int]]:
    if not names:
        return {}
    return {name: counts for name, *counts in transaction.rows(statement, _named(names))}
