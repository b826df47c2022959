"""Why a job that ought to move does not: facts in, a reason with its evidence and a way out. Pure.

The store reads the facts at a bounded cost (`stores/verbs/stuck.py`); every time in them is the store's own. What is
healthy has no reason: a job that is not due yet or has not waited long, one that runs within its usual time, one whose
lease has expired and whose reaper is about to come.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from datetime import datetime
from enum import StrEnum

from holdfast.domain.admission import SourceStanding
from holdfast.domain.durations import spoken
from holdfast.domain.job import DEFAULT_HEARTBEAT_SECONDS
from holdfast.domain.sources import PausedBy

# All thresholds, in seconds unless they say otherwise.
WAITS_LONG = 300.0  # due and not claimed
LEASE_OVER = 15.0  # past its lease: a reaper comes every ten seconds
REAPER_AWAY = 60.0  # since its last tick
WORKER_ALIVE = 90.0  # a worker writes its row every 20 s
TASK_KNOWN = 600.0  # workers announce their tasks every minute
USUAL_FACTOR = 3.0  # times the 95th percentile of what the task's successful runs took
USUAL_LEAST_RUNS = 20
USUAL_MOST_RUNS = 200
RUNS_LONG_AT_LEAST = 60.0
RUNS_LONG_UNKNOWN = 3600.0  # where too few runs are on record
# Past its time limit, since its claim. Its worker acts earlier: a minute for the start, five seconds after TERM.
LIMIT_OVER = 120.0


class Code(StrEnum):
    LEASE_EXPIRED = "lease_expired"
    CANCEL_IGNORED = "cancel_ignored"
    NOT_STARTED = "not_started"
    OVER_LIMIT = "over_limit"
    RUNS_LONG = "runs_long"
    QUEUE_PAUSED = "queue_paused"
    QUEUE_FULL = "queue_full"
    SOURCE_OFF = "source_off"
    SOURCE_PAUSED = "source_paused"
    SOURCE_FULL = "source_full"
    SOURCE_RATE = "source_rate"
    NO_WORKER = "no_worker"
    TASK_UNKNOWN = "task_unknown"
    QUEUE_UNSERVED = "queue_unserved"
    BACKLOG = "backlog"


@dataclass(frozen=True, slots=True)
class Verdict:
    """`reason` is one short sentence that does not change; `detail` has the figures, `advice` the way out."""

    code: Code
    reason: str
    detail: str
    advice: str


@dataclass(frozen=True, slots=True)
class RunningFacts:
    task: str
    claimed_at: datetime
    lease_expires_at: datetime
    lease_seconds: float
    owner: str
    cancel_requested_at: datetime | None = None
    timeout_seconds: float | None = None
    unstarted_seconds: float | None = None  # as its worker tells: it lies in a runner that does not start it


@dataclass(frozen=True, slots=True)
class ReaperFacts:
    ticked_at: datetime | None = None
    holder: str | None = None
    outage_ended_at: datetime | None = None


@dataclass(frozen=True, slots=True)
class UsualTime:
    """What the last successful runs of a task took, in seconds."""

    runs: tuple[float, ...] = ()

    @property
    def seconds(self) -> float | None:
        """The 95th percentile; None when too few are on record to speak of a usual time."""
        if len(self.runs) < USUAL_LEAST_RUNS:
            return None
        ordered = sorted(self.runs)
        return ordered[min(len(ordered) - 1, int(len(ordered) * 0.95))]


@dataclass(frozen=True, slots=True)
class QueueFacts:
    paused_at: datetime | None = None
    max_running: int | None = None
    running: int = 0


@dataclass(frozen=True, slots=True)
class SourceFacts:
    standing: SourceStanding
    enabled: bool = True
    paused_until: datetime | None = None
    running: int = 0
    paused_by: str | None = None
    probes: int = 0  # those of the running that were let in since its pause was over


@dataclass(frozen=True, slots=True)
class WorkerFacts:
    """A worker that is alive and takes jobs; `queues` is None for all of them."""

    queues: tuple[str, ...] | None
    slots: int
    running: int


@dataclass(frozen=True, slots=True)
class WaitingFacts:
    """A job that has been due for long, with what it waits behind."""

    queue_name: str
    task: str
    source_name: str | None = None
    queue: QueueFacts = QueueFacts()
    source: SourceFacts | None = None
    announced_at: datetime | None = None
    workers: Sequence[WorkerFacts] = ()


def due_since(run_after: datetime, attempt: int, updated_at: datetime) -> datetime:
    """Since when it could have been claimed: one that has run before came back with its last transition."""
    return max(run_after, updated_at) if attempt else run_after


# running


def why_running(facts: RunningFacts, usual: UsualTime, reaper: ReaperFacts, now: datetime) -> Verdict | None:
    overdue = _seconds(facts.lease_expires_at, now)
    if overdue > LEASE_OVER:
        return _expired(facts, overdue, reaper, now)
    if overdue > 0:
        return None
    if facts.cancel_requested_at is not None:
        patience = facts.lease_seconds + 2 * min(DEFAULT_HEARTBEAT_SECONDS, facts.lease_seconds / 3)
        asked = _seconds(facts.cancel_requested_at, now)
        if asked > patience:
            return Verdict(
                Code.CANCEL_IGNORED,
                "its cancel was requested long ago and it still runs",
                f"requested {spoken(asked)} ago; {facts.owner} renews its lease all the same",
                f"look at the log of {facts.owner} and restart that worker: its jobs are then released or cancelled",
            )
    return _without_progress(facts, now) or _long(facts, usual, now)


def _without_progress(facts: RunningFacts, now: datetime) -> Verdict | None:
    """Its lease is renewed, and its worker should have started or ended it long ago."""
    if facts.unstarted_seconds is not None:
        return Verdict(
            Code.NOT_STARTED,
            "its worker holds it and does not start it",
            f"a runner of {facts.owner} has held it for {spoken(facts.unstarted_seconds)} without starting it",
            f"another job blocks that runner: cancel it (holdfast workers shows it), or restart {facts.owner}",
        )
    runs_for = _seconds(facts.claimed_at, now)
    if facts.timeout_seconds is None or runs_for <= facts.timeout_seconds + LIMIT_OVER:
        return None
    return Verdict(
        Code.OVER_LIMIT,
        "its time limit is over and its lease is still renewed",
        f"claimed {spoken(runs_for)} ago, limit {spoken(facts.timeout_seconds)}; {facts.owner} renews it still",
        f"look at the log of {facts.owner} and restart that worker: its jobs are then released",
    )


def _expired(facts: RunningFacts, overdue: float, reaper: ReaperFacts, now: datetime) -> Verdict | None:
    ticked = None if reaper.ticked_at is None else _seconds(reaper.ticked_at, now)
    reason = "its lease expired and nobody reaps"
    expired = f"the lease of {facts.owner} expired {spoken(overdue)} ago"
    if ticked is None:
        return Verdict(
            Code.LEASE_EXPIRED, reason, f"{expired}; no reaper has ever run", "start a worker: every worker reaps"
        )
    if ticked > REAPER_AWAY:
        return Verdict(
            Code.LEASE_EXPIRED,
            reason,
            f"{expired}; the reaper last ran {spoken(ticked)} ago ({reaper.holder})",
            "start a worker: every worker reaps",
        )
    if reaper.outage_ended_at is not None and _seconds(reaper.outage_ended_at, now) < facts.lease_seconds + LEASE_OVER:
        return None  # after an outage every lease gets its full time once more, and then it is reaped
    return Verdict(
        Code.LEASE_EXPIRED,
        "its lease expired and the reaper cannot take it",
        f"{expired}; the reaper last ran {spoken(ticked)} ago and left it",
        "look for a transaction that holds the job's row locked (pg_stat_activity), and end it",
    )


def _long(facts: RunningFacts, usual: UsualTime, now: datetime) -> Verdict | None:
    runs_for = _seconds(facts.claimed_at, now)
    known = usual.seconds
    if known is None:
        if runs_for <= RUNS_LONG_UNKNOWN:
            return None
        detail = f"runs for {spoken(runs_for)}; only {len(usual.runs)} runs of {facts.task} are on record"
    else:
        if runs_for <= max(RUNS_LONG_AT_LEAST, USUAL_FACTOR * known):
            return None
        detail = f"runs for {spoken(runs_for)}; of the last {len(usual.runs)} runs 95 % took at most {spoken(known)}"
    return Verdict(
        Code.RUNS_LONG,
        "it runs past its usual time",
        f"{detail} (at {facts.owner})",
        "see what it says (holdfast jobs logs ID --follow); cancel it if it hangs, and give the task a timeout",
    )


# waiting


def why_waiting(facts: WaitingFacts, now: datetime) -> Verdict:
    """What has been due for long always has a reason; `backlog` if there is no other."""
    return _queue_is_closed(facts, now) or _source_is_closed(facts, now) or _nobody_takes_it(facts, now) or _slow(facts)


def _queue_is_closed(facts: WaitingFacts, now: datetime) -> Verdict | None:
    queue, name = facts.queue, facts.queue_name
    if queue.paused_at is not None:
        return Verdict(
            Code.QUEUE_PAUSED,
            "its queue is paused",
            f"queue {name} is paused since {spoken(_seconds(queue.paused_at, now))}",
            f"holdfast queues resume {name}",
        )
    if queue.max_running is not None and queue.running >= queue.max_running:
        return Verdict(
            Code.QUEUE_FULL,
            "its queue runs as many jobs as it may",
            f"queue {name} runs {queue.running} of at most {queue.max_running}",
            f"holdfast queues limit {name} N, or wait",
        )
    return None


_PAUSES: dict[str, tuple[str, str]] = {
    PausedBy.BREAKER: (
        "its source is paused by the breaker",
        "look at the failures of its last jobs (holdfast jobs list --state failed); it opens again by itself",
    ),
    PausedBy.OPERATOR: ("its source is paused by an operator", "holdfast sources resume {name}"),
    PausedBy.RETRY_AFTER: (
        "its source asked to be left alone for a while",
        "wait; lower its rate if that happens often: holdfast sources set {name} --rate RATE",
    ),
}


def _source_is_closed(facts: WaitingFacts, now: datetime) -> Verdict | None:
    source, name = facts.source, facts.source_name
    if source is None:
        return None
    if not source.enabled:
        return Verdict(
            Code.SOURCE_OFF,
            "its source is switched off",
            f"source {name} is switched off",
            f"holdfast sources set {name} --enabled",
        )
    if source.paused_until is not None and source.paused_until > now:
        reason, advice = _PAUSES.get(source.paused_by or "", _PAUSES[PausedBy.BREAKER])
        left = spoken(-_seconds(source.paused_until, now))
        return Verdict(
            Code.SOURCE_PAUSED, reason, f"source {name} is paused for another {left}", advice.format(name=name)
        )
    standing = source.standing
    if standing.half_open and source.probes:
        return Verdict(
            Code.SOURCE_PAUSED,
            "its source is being probed after failures",
            f"source {name} lets one job in until that one has succeeded",
            "wait for the probe to end",
        )
    if standing.max_concurrent is not None and source.running >= standing.max_concurrent:
        return Verdict(
            Code.SOURCE_FULL,
            "its source runs as many jobs as it may",
            f"source {name} runs {source.running} of at most {standing.max_concurrent}",
            f"holdfast sources set {name} --max-concurrent N, or wait",
        )
    return None


def _nobody_takes_it(facts: WaitingFacts, now: datetime) -> Verdict | None:
    announced = None if facts.announced_at is None else _seconds(facts.announced_at, now)
    last = "was never announced by any worker" if announced is None else f"was last announced {spoken(announced)} ago"
    if not facts.workers:
        return Verdict(
            Code.NO_WORKER,
            "no worker is alive",
            f"no worker has written its row for {spoken(WORKER_ALIVE)}; task {facts.task} {last}",
            "start one: holdfast worker MODULE:APP",
        )
    if announced is None or announced > TASK_KNOWN:
        return Verdict(
            Code.TASK_UNKNOWN,
            "no worker knows its task",
            f"task {facts.task} {last}; {len(facts.workers)} workers are alive",
            f"start a worker whose app has {facts.task}, or correct the name it was enqueued with",
        )
    if not _serving(facts):
        return Verdict(
            Code.QUEUE_UNSERVED,
            "no worker serves its queue",
            f"{len(facts.workers)} workers are alive, and none of them takes jobs from queue {facts.queue_name}",
            f"start a worker with --queues {facts.queue_name}, or one without --queues, which takes all",
        )
    return None


def _slow(facts: WaitingFacts) -> Verdict:
    source = facts.source
    if source is not None and (level := source.standing.level) is not None and level < source.standing.burst:
        return Verdict(
            Code.SOURCE_RATE,
            "its source lets no more jobs start",
            f"source {facts.source_name} lets {source.standing.rate_limit_per_minute:g} jobs a minute start",
            f"holdfast sources set {facts.source_name} --rate RATE, or wait",
        )
    serving = _serving(facts)
    slots, running = sum(worker.slots for worker in serving), sum(worker.running for worker in serving)
    busy = f"all {slots} slots are busy" if running >= slots else f"{running} of {slots} slots are busy"
    return Verdict(
        Code.BACKLOG,
        "due for more than five minutes and not claimed",
        f"{len(serving)} workers serve queue {facts.queue_name}: {busy}",
        "start more workers or processes, or give urgent jobs a higher priority"
        if running >= slots
        else "there is room: look at the workers' logs (holdfast workers; holdfast doctor)",
    )


def _serving(facts: WaitingFacts) -> list[WorkerFacts]:
    return [worker for worker in facts.workers if worker.queues is None or facts.queue_name in worker.queues]


def _seconds(since: datetime, now: datetime) -> float:
    return (now - since).total_seconds()
