"""What needs somebody now, the worst first. Each thing says what is wrong, since when or how much, and what to do."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from urllib.parse import urlencode

from holdfast.domain.activity import Step
from holdfast.domain.durations import spoken
from holdfast.serve.dashboard.activity import ended, troubled
from holdfast.serve.dashboard.fleet import Fleet, source_standing

MOST = 12
FAILING_SECONDS = 900.0
FAILING_LEAST = 3  # attempts in trouble
FAILING_SHARE = 0.2
GONE_FOR_SECONDS = 3_600.0  # a worker that went longer ago is no news


@dataclass(frozen=True, slots=True)
class Item:
    level: str  # bad or warn
    title: str
    detail: str
    address: str
    advice: str = ""


def attention(fleet: Fleet, tasks: dict[str, Step]) -> list[Item]:
    found = [*_nobody_works(fleet), *_stuck(fleet), *_failing(tasks), *_sources(fleet), *_queues(fleet), *_gone(fleet)]
    return sorted(found, key=lambda item: item.level != "bad")[:MOST]


def _nobody_works(fleet: Fleet) -> Iterator[Item]:
    if fleet.ready and not any(fleet.alive(worker) for worker in fleet.workers):
        yield Item(
            "bad", "No worker is alive", f"{fleet.ready:,} jobs are due", "/workers", "holdfast worker MODULE:APP"
        )


def _stuck(fleet: Fleet) -> Iterator[Item]:
    for stuck in fleet.stuck:
        more = "+" if stuck.at_least else ""
        title = f"{stuck.job.task}: {stuck.reason}"
        detail = f"{stuck.count:,}{more} in queue {stuck.job.queue}; {stuck.detail}"
        yield Item("bad", title, detail, f"/jobs/{stuck.job.id}", stuck.advice)


def _failing(tasks: dict[str, Step]) -> Iterator[Item]:
    for name, step in tasks.items():
        trouble, whole = troubled(step), ended(step) + step.retried + step.lost
        if trouble >= FAILING_LEAST and trouble >= FAILING_SHARE * whole:
            detail = f"{trouble:,} of {whole:,} attempts in the last {spoken(FAILING_SECONDS)} went wrong"
            query = urlencode({"task": name, "state": "failed" if step.failed else "retryable"})
            yield Item("bad" if step.failed else "warn", f"{name} keeps failing", detail, f"/jobs?{query}")


def _sources(fleet: Fleet) -> Iterator[Item]:
    for source in fleet.sources:
        said, kind = source_standing(source, fleet.now)
        if kind != "good":
            more = "+" if source.waiting_at_least else ""
            detail = f"{source.waiting:,}{more} jobs wait"
            if source.paused_until is not None and source.paused_until > fleet.now:
                detail += f", for another {spoken((source.paused_until - fleet.now).total_seconds())}"
            yield Item("warn", f"Source {source.name}: {said}", detail, "/sources")


def _queues(fleet: Fleet) -> Iterator[Item]:
    for queue in fleet.queues:
        if queue.paused_at is not None:
            since = spoken((fleet.now - queue.paused_at).total_seconds())
            yield Item(
                "warn", f"Queue {queue.name} is paused", f"since {since}; {queue.ready:,} jobs are due", "/queues"
            )


def _gone(fleet: Fleet) -> Iterator[Item]:
    for worker in fleet.workers:
        silent = (fleet.now - worker.beat_at).total_seconds()
        if worker.stopped_at is None and not fleet.alive(worker) and silent < GONE_FOR_SECONDS:
            detail = f"not heard of for {spoken(silent)}; its jobs are given to others when their leases end"
            yield Item("warn", f"Worker {worker.id} is gone", detail, "/workers")
