"""What is seen, as tables of words: one function a section. Everything a job can contain is made safe here."""

from __future__ import annotations

from dataclasses import dataclass
from datetime import datetime

from holdfast.cli.ages import span
from holdfast.cli.output import one_line
from holdfast.cli.progress import progress_bar
from holdfast.cli.top.sight import Sight
from holdfast.domain.lifecycle import State
from holdfast.domain.sources import Breaker
from holdfast.domain.stuck import WORKER_ALIVE
from holdfast.domain.views import Listed, QueueView, SourceView, Stuck, WorkerView

STOPPED_SHOWN_SECONDS = 60.0
_BAR = 10
GOOD, WARN, BAD, FAINT = "green", "yellow", "red", "dim"


@dataclass(frozen=True, slots=True)
class Column:
    header: str
    right: bool = False
    shrinks: bool = False  # names: they are cut before a figure is


@dataclass(frozen=True, slots=True)
class Cell:
    text: str
    style: str = ""


@dataclass(frozen=True, slots=True)
class Section:
    name: str
    columns: tuple[Column, ...]
    rows: tuple[tuple[Cell, ...], ...]
    nothing: str = ""  # what is said when there is no row; without it the section is left out


def sections(sight: Sight) -> list[Section]:
    now = sight.at
    return [
        _attention(sight, now),
        _running(sight, now),
        _queues(sight, now),
        _workers(sight, now),
        _sources(sight, now),
    ]


def _columns(*headers: str) -> tuple[Column, ...]:
    """`~` behind a name, `>` behind a figure that stands at the right."""
    return tuple(Column(header.rstrip(">~"), header.endswith(">"), header.endswith("~")) for header in headers)


def _attention(sight: Sight, now: datetime) -> Section:
    columns = _columns("reason~", "jobs>", "since>", "task~", "queue~", "what to do~")
    return Section("attention", columns, tuple(_stuck(group, now) for group in sight.stuck), "nothing is stuck")


def _stuck(group: Stuck, now: datetime) -> tuple[Cell, ...]:
    job = group.job
    since = job.claimed_at if job.state is State.RUNNING else job.run_after
    count = f"{group.count:,}{'+' if group.at_least else ''}"
    return (
        _name(group.reason, WARN), Cell(count), _since(since, now), _name(job.task), _name(job.queue),
        _name(group.advice, FAINT),
    )  # fmt: skip


def _running(sight: Sight, now: datetime) -> Section:
    columns = _columns("task~", "queue~", "for>", "try>", "worker~", "progress~", "id")
    return Section("running", columns, tuple(_run(item, now) for item in sight.running), "nothing runs")


def _run(item: Listed, now: datetime) -> tuple[Cell, ...]:
    job = item.job
    lost = job.lease_expires_at is not None and job.lease_expires_at < now
    worker = Cell("its lease is over", BAD) if lost else _name(job.lease_owner or "")
    if job.cancel_requested_at is not None:
        worker = Cell("is asked to stop", WARN)
    progress = "(large)" if "progress" in item.omitted else progress_bar(job.progress, _BAR) or ""
    return (
        _name(job.task), _name(job.queue), _since(job.claimed_at, now), Cell(str(job.attempt)), worker,
        _name(progress), Cell(job.id, FAINT),
    )  # fmt: skip


def _queues(sight: Sight, now: datetime) -> Section:
    deepest = sorted(sight.queues, key=lambda queue: (-queue.ready, -queue.running, queue.name))
    columns = _columns("queue~", "ready>", "scheduled>", "running>", "limit>", "oldest>", "state")
    return Section("queues", columns, tuple(_queue(queue, now) for queue in deepest), "nothing is queued")


def _queue(queue: QueueView, now: datetime) -> tuple[Cell, ...]:
    full = queue.max_running is not None and queue.running >= queue.max_running
    state = (
        Cell("paused", WARN) if queue.paused_at else Cell("full", WARN) if full and queue.ready else Cell("open", FAINT)
    )
    return (
        _name(queue.name), _count(queue.ready), _count(queue.scheduled), _count(queue.running),
        Cell("-" if queue.max_running is None else f"{queue.max_running:,}"), _since(queue.oldest_ready_at, now), state,
    )  # fmt: skip


def _workers(sight: Sight, now: datetime) -> Section:
    columns = _columns("worker~", "state", "runs>", "slots>", "memory>", "beat>", "queues~", "app~")
    recent = [worker for worker in sight.workers if _is_recent(worker, now)]
    busiest = sorted(recent, key=lambda worker: (worker.stopped_at is not None, -worker.running, worker.id))
    rows = tuple(_worker(worker, now) for worker in busiest)
    return Section("workers", columns, rows, "no worker is alive")


def _is_recent(worker: WorkerView, now: datetime) -> bool:
    return worker.stopped_at is None or (now - worker.stopped_at).total_seconds() < STOPPED_SHOWN_SECONDS


def _worker(worker: WorkerView, now: datetime) -> tuple[Cell, ...]:
    silent = worker.stopped_at is None and (now - worker.beat_at).total_seconds() > WORKER_ALIVE
    state = (
        Cell("silent", BAD) if silent else Cell(one_line(worker.state).replace("_", " "), _WORKER.get(worker.state, ""))
    )
    queues = "all" if worker.queues is None else ",".join(worker.queues)
    return (
        _name(worker.id), state, Cell(str(worker.running)), Cell(str(worker.slots)), Cell(_memory(worker)),
        _since(worker.beat_at, now), _name(queues), _name(worker.app or "", FAINT),
    )  # fmt: skip


_WORKER = {"error_wait": BAD, "draining": WARN, "stopped": FAINT, "idle": FAINT}


def _memory(worker: WorkerView) -> str:
    """Where a worker tells it."""
    used = worker.detail.get("memory_kb")
    return f"{used / 2**10:,.0f} MiB" if isinstance(used, int | float) and not isinstance(used, bool) else "-"


def _sources(sight: Sight, now: datetime) -> Section:
    columns = _columns("source~", "state", "level>", "rate>", "at once>", "waiting>", "streak>", "until>")
    return Section("sources", columns, tuple(_source(source, now) for source in sight.sources))


def _source(source: SourceView, now: datetime) -> tuple[Cell, ...]:
    paused = source.paused_until is not None and source.paused_until > now
    left = span((source.paused_until - now).total_seconds()) if paused and source.paused_until else "-"
    most = "-" if source.max_concurrent is None else str(source.max_concurrent)
    return (
        _name(source.name),
        _source_state(source, paused),
        Cell("-" if source.level is None else f"{source.level:.3g}/{source.burst}"),
        Cell("-" if source.rate_limit_per_minute is None else f"{source.rate_limit_per_minute:g}/min"),
        Cell(f"{source.in_use}/{most}"),
        Cell(f"{source.waiting:,}{'+' if source.waiting_at_least else ''}"),
        Cell(f"{source.failure_streak}/{source.breaker_threshold}"),
        Cell(left),
    )


def _source_state(source: SourceView, paused: bool) -> Cell:
    if not source.enabled:
        return Cell("disabled", WARN)
    if source.breaker is not Breaker.CLOSED:
        return Cell(f"breaker {str(source.breaker).replace('_', ' ')}", BAD if source.breaker is Breaker.OPEN else WARN)
    return Cell("paused", WARN) if paused else Cell("ok", GOOD)


def _name(text: str, style: str = "") -> Cell:
    return Cell(one_line(text), style)


def _count(number: int) -> Cell:
    return Cell(f"{number:,}", "" if number else FAINT)


def _since(moment: datetime | None, now: datetime) -> Cell:
    return Cell("-", FAINT) if moment is None else Cell(span(max((now - moment).total_seconds(), 0.0)))
