"""Say what does not move and why: read the facts, let `domain/stuck.py` decide, show each group by its oldest job."""

from __future__ import annotations

import json
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, replace
from datetime import datetime, timedelta
from functools import cached_property
from typing import Any

from holdfast.domain import stuck as reasons
from holdfast.domain.admission import SourceStanding
from holdfast.domain.names import check_integer
from holdfast.domain.stuck import (
    Code,
    QueueFacts,
    ReaperFacts,
    RunningFacts,
    SourceFacts,
    UsualTime,
    Verdict,
    WaitingFacts,
    WorkerFacts,
)
from holdfast.domain.views import Stuck
from holdfast.domain.worker_states import WorkerState
from holdfast.stores import rows
from holdfast.stores.database import Database, Row, Transaction
from holdfast.stores.statements import admission, queries, workers
from holdfast.stores.statements import stuck as sql
from holdfast.stores.statements.words import SQLITE
from holdfast.stores.types import to_text

MAX_PAGE = 1_000
# What one look may cost at most: lanes and running jobs that are looked at, jobs that are counted, runs remembered.
MOST_LANES = 2_000
MOST_RUNNING = 10_000
MOST_COUNTED = 10_000
MOST_RUNS_READ = 5_000
_HEADS = 20
MAX_SECONDS = 10**9

Group = tuple[str, str, str]  # queue, task, source


@dataclass(frozen=True, slots=True)
class _Lane:
    queue: str
    priority: int
    task: str
    source: str

    @property
    def group(self) -> Group:
        return self.queue, self.task, self.source


@dataclass(frozen=True, slots=True)
class _Found:
    """The oldest job of a group, since when it is there, and why."""

    job_id: str
    since: datetime
    verdict: Verdict
    group: Group
    lane: _Lane | None = None
    count: int = 1


def stuck(database: Database, limit: int, queues: Sequence[str] | None = None) -> list[Stuck]:
    check_integer(limit, "limit", 1, MAX_PAGE)
    with database.reading() as transaction:
        return _Look(transaction, queues).everything(limit)


class _Look:
    """One look at the store. Small tables are read once, and only when something makes them matter."""

    def __init__(self, transaction: Transaction, queues: Sequence[str] | None) -> None:
        self._transaction = transaction
        self._shown = None if queues is None else frozenset(queues)
        self._usual: dict[str, dict[str, UsualTime]] = {}

    def everything(self, limit: int) -> list[Stuck]:
        running = self._oldest_of_each(self._running())
        waiting = self._waiting()
        # What nobody looks after comes first; what merely runs long comes last.
        first = [found for found in running if found.verdict.code is not Code.RUNS_LONG]
        last = [found for found in running if found.verdict.code is Code.RUNS_LONG]
        ours = [found for found in (*first, *waiting, *last) if self._is_shown(found.group[0])]
        return [view for found in ours[:limit] if (view := self._view(found, waiting)) is not None]

    def _is_shown(self, queue: str) -> bool:
        return self._shown is None or queue in self._shown

    # running jobs

    def _running(self) -> Iterator[_Found]:
        for row in self._transaction.rows(sql.RUNNING, {"limit": MOST_RUNNING}):
            job_id, queue, task, source, claimed, expires, lease, owner, cancel, limit = row
            facts = RunningFacts(
                task,
                self._moment(claimed),
                self._moment(expires),
                float(lease),
                owner,
                rows.moment(cancel),
                None if limit is None else float(limit),
                self._unstarted.get((owner, job_id)),
            )
            verdict = reasons.why_running(facts, self._usual_time(queue, task), self._reaper, self._now)
            if verdict is not None:
                yield _Found(job_id, facts.claimed_at, verdict, (queue, task, source))

    def _oldest_of_each(self, found: Iterator[_Found]) -> list[_Found]:
        groups: dict[tuple[Group, str], _Found] = {}
        for item in found:
            key = (item.group, item.verdict.reason)
            known = groups.get(key)
            oldest = item if known is None or item.since < known.since else known
            groups[key] = replace(oldest, count=1 if known is None else known.count + 1)
        return sorted(groups.values(), key=lambda item: item.since)

    def _usual_time(self, queue: str, task: str) -> UsualTime:
        if queue not in self._usual:
            self._usual[queue] = self._read_usual_times(queue)
        return self._usual[queue].get(task, UsualTime())

    def _read_usual_times(self, queue: str) -> dict[str, UsualTime]:
        runs: dict[str, list[float]] = {}
        for task, claimed, finished in self._transaction.rows(
            sql.RECENT_RUNS, {"queue": queue, "limit": MOST_RUNS_READ}
        ):
            taken = runs.setdefault(task, [])
            if claimed is not None and len(taken) < reasons.USUAL_MOST_RUNS:
                taken.append((self._moment(finished) - self._moment(claimed)).total_seconds())
        return {task: UsualTime(tuple(taken)) for task, taken in runs.items()}

    # waiting jobs

    def _waiting(self) -> list[_Found]:
        groups: dict[Group, _Found] = {}
        for lane in self._late_lanes:
            head = self._overdue_head(lane)
            if head is None:
                continue
            known = groups.get(lane.group)
            if known is None or head[1] < known.since:
                verdict = known.verdict if known is not None else reasons.why_waiting(self._facts(lane), self._now)
                groups[lane.group] = _Found(head[0], head[1], verdict, lane.group, lane)
        return sorted(groups.values(), key=lambda item: item.since)

    @cached_property
    def _lanes(self) -> dict[_Lane, datetime]:
        """Every lane with something in it, and the due time of its head."""
        lanes: dict[_Lane, datetime] = {}
        last = _Lane("", 0, "", "")
        while len(lanes) < MOST_LANES and (row := self._next_lane(last)) is not None:
            last = _Lane(row[0], int(row[1]), row[2], row[3])
            lanes[last] = self._moment(row[4])
        return lanes

    def _next_lane(self, last: _Lane) -> Row | None:
        found = self._transaction.rows(sql.NEXT_LANE, self._named(last))
        return found[0] if found else None

    @property
    def _late_lanes(self) -> list[_Lane]:
        return [lane for lane, head in self._lanes.items() if head < self._late]

    def _overdue_head(self, lane: _Lane) -> tuple[str, datetime] | None:
        """The oldest job of the lane that has waited for long; what has just come back from a run has not."""
        given = {**self._named(lane), "before": self._parameter(self._late), "limit": _HEADS}
        for job_id, run_after, attempt, updated in self._transaction.rows(sql.LANE_HEADS, given):
            since = reasons.due_since(self._moment(run_after), attempt, self._moment(updated))
            if since < self._late:
                return job_id, since
        return None

    def _facts(self, lane: _Lane) -> WaitingFacts:
        return WaitingFacts(
            lane.queue,
            lane.task,
            lane.source or None,
            self._queues.get(lane.queue, QueueFacts()),
            self._sources.get(lane.source),
            self._announced.get(lane.task),
            self._workers,
        )

    # what is shown

    def _view(self, found: _Found, waiting: list[_Found]) -> Stuck | None:
        job = self._transaction.rows(queries.JOB, {"id": found.job_id})
        if not job:  # gone since we looked
            return None
        verdict, count = found.verdict, found.count
        if found.lane is not None:
            count = self._counted([lane for lane in self._late_lanes if lane.group == found.group], self._late)
        if found.lane is not None and verdict.code is Code.BACKLOG:
            ahead = self._ahead(found.lane, found.since, waiting)
            verdict = replace(verdict, detail=f"{verdict.detail}; {_at_most(ahead)} due jobs are ahead of it")
        return Stuck(
            rows.job(job[0], self._transaction.dialect),
            verdict.reason,
            str(verdict.code),
            verdict.detail,
            verdict.advice,
            min(count, MOST_COUNTED),
            count > MOST_COUNTED,
        )

    def _ahead(self, mine: _Lane, since: datetime, waiting: list[_Found]) -> int:
        """Due jobs of the queue with a higher priority, or with the same one and an earlier due time."""
        closed = {found.group for found in waiting if found.verdict.code is not Code.BACKLOG}
        rivals = [lane for lane in self._lanes if lane.queue == mine.queue and lane.group not in closed]
        higher = self._counted([lane for lane in rivals if lane.priority > mine.priority], self._now)
        equal = self._counted([lane for lane in rivals if lane.priority == mine.priority], since)
        return higher + equal

    def _counted(self, lanes: list[_Lane], before: datetime) -> int:
        """How many jobs were due before then; beyond `MOST_COUNTED` nobody counts."""
        count = 0
        for lane in lanes:
            if count > MOST_COUNTED:
                break
            given = {**self._named(lane), "before": self._parameter(before), "limit": MOST_COUNTED + 1}
            count += int(self._transaction.rows(sql.LANE_COUNT, given)[0][0])
        return count

    # the small tables

    @cached_property
    def _now(self) -> datetime:
        return self._moment(self._transaction.rows(sql.NOW)[0][0])

    @cached_property
    def _late(self) -> datetime:
        return self._now - timedelta(seconds=reasons.WAITS_LONG)

    @cached_property
    def _reaper(self) -> ReaperFacts:
        found = self._transaction.rows(sql.REAPER)
        if not found:
            return ReaperFacts()
        ticked, holder, outage = found[0]
        return ReaperFacts(rows.moment(ticked), holder, rows.moment(outage))

    @cached_property
    def _queues(self) -> dict[str, QueueFacts]:
        found = self._transaction.rows(sql.QUEUES)
        running = self._count_running(admission.RUNNING_BY_QUEUE, [name for name, _, most in found if most is not None])
        return {name: QueueFacts(rows.moment(paused), most, running.get(name, 0)) for name, paused, most in found}

    @cached_property
    def _sources(self) -> dict[str, SourceFacts]:
        found = self._transaction.rows(sql.SOURCES)
        names = json.dumps([row[0] for row in found])
        counted = self._transaction.rows(admission.RUNNING_BY_SOURCE, {"names": names}) if found else []
        counts = {name: (int(running), int(probes)) for name, running, probes in counted}
        return {row[0]: self._source(row, *counts.get(row[0], (0, 0))) for row in found}

    def _source(self, row: Row, running: int, probes: int) -> SourceFacts:
        name, enabled, paused_until, most, rate, burst, level, level_at, half_open, paused_by = row
        elapsed = (self._now - self._moment(level_at)).total_seconds()
        standing = SourceStanding(name, most, rate, burst, level, elapsed, bool(half_open))
        return SourceFacts(standing, bool(enabled), rows.moment(paused_until), running, paused_by, probes)

    def _count_running(self, statement: Any, names: list[str]) -> dict[str, int]:
        if not names:
            return {}
        return {name: int(count) for name, count in self._transaction.rows(statement, {"names": json.dumps(names)})}

    @cached_property
    def _announced(self) -> dict[str, datetime]:
        return {name: self._moment(at) for name, at in self._transaction.rows(sql.TASKS)}

    @cached_property
    def _live_workers(self) -> list[dict[str, Any]]:
        oldest = self._now - timedelta(seconds=reasons.WORKER_ALIVE)
        found = [
            rows.decoded(workers.VIEWED, row, self._transaction.dialect)
            for row in self._transaction.rows(workers.WORKERS)
        ]
        return [row for row in found if row["stopped_at"] is None and row["beat_at"] > oldest]

    @cached_property
    def _workers(self) -> tuple[WorkerFacts, ...]:
        """Those that are alive and take jobs."""
        gone = (WorkerState.DRAINING, WorkerState.STOPPED)
        return tuple(
            WorkerFacts(None if row["queues"] is None else tuple(row["queues"]), row["slots"], row["running"])
            for row in self._live_workers
            if row["state"] not in gone
        )

    @cached_property
    def _unstarted(self) -> dict[tuple[str, str], float]:
        """By worker and job: the seconds for which a runner has held it. Any worker over HTTP may write such a row."""
        found: dict[tuple[str, str], float] = {}
        for row in self._live_workers:
            detail = row["detail"]
            told = detail.get(Code.NOT_STARTED) if isinstance(detail, dict) else None
            for job_id, seconds in told.items() if isinstance(told, dict) else ():
                if isinstance(seconds, int) and 0 <= seconds < MAX_SECONDS:
                    found[row["id"], job_id] = float(seconds)
        return found

    def _named(self, lane: _Lane) -> dict[str, Any]:
        return {"queue": lane.queue, "priority": lane.priority, "task": lane.task, "source": lane.source}

    def _parameter(self, moment: datetime) -> Any:
        return to_text(moment) if self._transaction.dialect == SQLITE else moment

    def _moment(self, value: Any) -> datetime:
        moment = rows.moment(value)
        assert moment is not None
        return moment


def _at_most(count: int) -> str:
    return f"more than {MOST_COUNTED:,}" if count > MOST_COUNTED else f"{count:,}"
