"""Is the work getting done: workers, duties, stuck jobs, schedules, files of jobs."""

from __future__ import annotations

from collections.abc import Iterator

from holdfast.doctor.patient import Patient
from holdfast.domain.errors import HoldfastError
from holdfast.domain.findings import Remark, info, ok, problem, warning
from holdfast.domain.views import Stuck
from holdfast.settings import mask_url
from holdfast.stores.inspection import duties as facts
from holdfast.stores.sql_store import SqlStore
from holdfast.wiring.sql import open_artifacts

_GROUPS_READ = 500


def workers(patient: Patient) -> Iterator[Remark]:
    every = facts.workers(patient.store)
    alive = [worker for worker in every if worker.silent_seconds < patient.limits.silent_worker_seconds]
    silent = [worker for worker in every if worker not in alive]
    if silent:
        names = ", ".join(f"{worker.id} ({worker.silent_seconds:.0f} s)" for worker in silent[:5])
        yield warning(
            f"{len(silent)} workers went silent without a goodbye: {names}",
            "Look at their logs: they were killed or cannot reach the store. Their jobs are taken over.",
        )
    if alive:
        yield ok(f"{len(alive)} workers are alive on {len({worker.host for worker in alive})} hosts")
    else:
        yield info("no worker is alive", "Start one: holdfast worker MODULE:APP")


def duties(patient: Patient) -> Iterator[Remark]:
    ticks = facts.ticks(patient.store)
    alive = patient.live_workers()
    reaper = ticks.get("reaper")
    if alive and (reaper is None or reaper > patient.limits.reaper_seconds):
        when = "has never run" if reaper is None else f"last ran {reaper:.0f} s ago"
        yield warning(
            f"workers are alive, and yet the reaper {when}: jobs of dead workers wait",
            "Look for 'store failed' and 'unexpected problem' in the workers' logs.",
        )
    elif reaper is not None:
        yield ok(f"the reaper ran {reaper:.0f} s ago")
    settings = patient.settings
    assert settings is not None
    retention = ticks.get("retention")
    if retention is None:
        yield info(
            "retention has not run yet", "A worker runs it within minutes of its start; see `holdfast retention`."
        )
    elif alive and retention > 4 * settings.upkeep_seconds + 60:
        yield warning(
            f"retention last ran {retention:.0f} s ago although workers are alive",
            "Look for 'upkeep failed' in their logs.",
        )
    else:
        yield ok(f"retention ran {retention:.0f} s ago")


def stuck(patient: Patient) -> Iterator[Remark]:
    by_reason: dict[str, list[Stuck]] = {}
    for group in SqlStore(patient.store).stuck(_GROUPS_READ):
        by_reason.setdefault(group.reason, []).append(group)
    for reason, groups in by_reason.items():
        count = sum(group.count for group in groups)
        more = "at least " if any(group.at_least for group in groups) else ""
        yield warning(
            f"{more}{count} jobs do not move: {reason}", f"{groups[0].advice} (`holdfast stuck` shows them)".strip()
        )
    if not by_reason:
        yield ok("no job is stuck")


def schedules(patient: Patient) -> Iterator[Remark]:
    every = facts.schedules(patient.store)
    late = [entry for entry in every if (entry.late_seconds or 0.0) > patient.limits.late_schedule_seconds]
    orphans = [entry for entry in every if not entry.task_is_known]
    for entry in late:
        yield warning(
            f"the schedule {entry.name} should have fired {entry.late_seconds:.0f} s ago",
            "Start a worker: any of them fires schedules. Look for 'schedule cannot fire' in their logs.",
        )
    for entry in orphans:
        yield warning(
            f"the schedule {entry.name} makes jobs of the task {entry.task}, which no worker has ever announced",
            "Start a worker whose app has that task, or remove the schedule: `holdfast schedules`.",
        )
    if not late and not orphans:
        yield ok(f"every schedule is on time ({len(every)})" if every else "there are no schedules")


def artifacts(patient: Patient) -> Iterator[Remark]:
    settings = patient.settings
    assert settings is not None
    place = mask_url(settings.artifacts_url)
    if _is_memory(settings.artifacts_url):
        yield problem(
            f"files of jobs are kept at {place}, in the memory of each process: nobody else sees them, and they are"
            " lost when it ends",
            "Set HOLDFAST_ARTIFACTS to a folder or a bucket.",
        )
        return
    try:
        open_artifacts(settings.artifacts_url).check()
    except (HoldfastError, OSError, ImportError) as error:
        yield problem(
            f"files of jobs cannot be kept at {place}: {error}",
            "Make it writable for the workers, or set HOLDFAST_ARTIFACTS to a folder or bucket that is.",
        )
        return
    hosts = (
        sorted({worker.host for worker in patient.live_workers()})
        if patient.database and not patient.mismatch and not patient.missing_parts
        else []
    )
    if len(hosts) > 1 and "://" not in settings.artifacts_url:
        yield warning(
            f"files of jobs are kept in the folder {place}, and workers run on {len(hosts)} hosts: {', '.join(hosts)}",
            "Unless all of them mount that folder, set HOLDFAST_ARTIFACTS to a bucket or a shared folder.",
        )
    else:
        yield ok(f"files of jobs can be kept at {place}; a place that App(artifacts=…) names was not looked at")


def _is_memory(location: str) -> bool:
    """Also behind another protocol: simplecache::memory://x"""
    return any(part.startswith("memory:") for part in location.split("::"))
