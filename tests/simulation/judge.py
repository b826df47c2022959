"""What must hold of a history when everything has drained: the audit log, against what everybody did and was told."""

from __future__ import annotations

import json
from collections import Counter
from collections.abc import Iterator
from dataclasses import dataclass
from typing import Any

from holdfast.domain.answers import Operated
from holdfast.domain.outcome import Failed, Snoozed, Succeeded
from holdfast.maintenance.verify import verify
from tests.simulation.clients import Clients
from tests.simulation.database import Disk, Faults
from tests.simulation.fleet import Fleet
from tests.simulation.programs import INVALID_ARGUMENTS, Run, Town, short
from tests.simulation.strangers import Strangers
from tests.simulation.watch import Violation

_EVENTS = "SELECT job_id, seq, event, from_state, attempt, worker, detail FROM holdfast_events ORDER BY job_id, seq"
_JOBS = "SELECT id, state, payload, failures, crashes, task FROM holdfast_jobs"
_TICKS = "SELECT job_id, count(*) FROM holdfast_schedule_ticks WHERE outcome = 'fired' GROUP BY job_id"
_FINISHED = ("succeeded", "failed", "cancelled")


@dataclass(frozen=True)
class Step:
    """A row of the audit log."""

    job_id: str
    seq: int
    event: str
    from_state: str | None
    attempt: int
    worker: str | None
    detail: dict[str, Any]

    @property
    def id(self) -> str:
        return f"{self.job_id}.{self.attempt}"


@dataclass(frozen=True)
class Case:
    """Everything that is known of a history at its end."""

    disk: Disk
    town: Town
    fleet: Fleet
    clients: Clients
    strangers: Strangers
    faults: Faults
    schedule_task: str
    poisoned: list[str]  # jobs whose payload cannot be decoded


class Judge:
    def __init__(self, case: Case) -> None:
        self._case = case
        self.steps = [_step(*row) for row in case.disk.rows(_EVENTS)]
        self._jobs = {row[0]: row for row in case.disk.rows(_JOBS)}
        self._log = {(step.job_id, step.attempt, step.event) for step in self.steps}
        self._runs: dict[str, list[Run]] = {}
        for run in case.town.runs:
            self._runs.setdefault(run.id, []).append(run)

    @property
    def events(self) -> Counter[str]:
        return Counter(step.event for step in self.steps)

    def violations(self) -> Iterator[Violation]:
        yield from self._verified()
        yield from self._drained()
        yield from self._promised()
        yield from self._operated()
        yield from self._answered()
        yield from self._earned()
        yield from self._started_once()
        yield from self._ticked()
        yield from self._poisoned()
        for error in self._case.clients.failed_after_idle:
            yield Violation("idle disconnect", f"an enqueue raised {error!r}")

    def _verified(self) -> Iterator[Violation]:
        """`holdfast verify`."""
        disk = self._case.disk
        for found in verify(disk.histories, references=disk.references).violations:
            yield Violation("verify", f"{short(found.job_id)} {found.rule}: {found.detail}")

    def _drained(self) -> Iterator[Violation]:
        """Liveness: without faults, everything ends."""
        for job_id, state, *_rest in self._jobs.values():
            if state not in _FINISHED:
                yield Violation("liveness", f"{short(job_id)} is still {state}")
        for run in self._case.town.live.values():
            yield Violation("liveness", f"{short(run.id)} still runs")

    def _promised(self) -> Iterator[Violation]:
        """An acknowledged enqueue exists, as it was asked for."""
        purged = {step.job_id for step in self.steps if step.event == "pruned"}
        for accepted in self._case.clients.accepted:
            row = self._jobs.get(accepted.answer.id)
            if accepted.answer.id in purged:
                continue
            if row is None:
                yield Violation("acknowledged enqueue", f"{short(accepted.answer.id)} is not there")
            elif accepted.answer.created and json.loads(row[2]) != accepted.job.payload:
                yield Violation("acknowledged enqueue", f"{short(accepted.answer.id)} has another payload")
        asked = {job.id for job in self._case.clients.unsure if job.id is not None}
        known = {*asked, *self._case.poisoned} | {accepted.answer.id for accepted in self._case.clients.accepted}
        nameless = sum(1 for job in self._case.clients.unsure if job.id is None)
        strange = [job for job, row in self._jobs.items() if job not in known and row[5] != self._case.schedule_task]
        if len(strange) > nameless:
            yield Violation("nothing from nowhere", f"{len(strange)} jobs that nobody can have asked for")

    def _operated(self) -> Iterator[Violation]:
        """What operators were told is in the log, and nothing is there that they were refused."""
        told: Counter[tuple[str, str]] = Counter()
        clients = self._case.clients
        for operation in clients.operations:
            if operation.answer.ok:
                told[operation.answer.did, operation.answer.job_id] += 1
        done = Counter((step.event, step.job_id) for step in self.steps if _is_operators(step))
        for did in (Operated.CANCELLED, Operated.CANCEL_REQUESTED, Operated.REQUEUED):
            verb = "requeue" if did is Operated.REQUEUED else "cancel"
            for job_id in self._jobs:
                count, most = done[did, job_id], told[did, job_id] + clients.unanswered[verb, job_id]
                if count > most:
                    yield Violation("operators", f"{short(job_id)}: {count} times {did}, and at most {most} said so")
        # To cancel what is cancelled, or asked to stop, is answered as the first time, and changes nothing.
        happened = Counter((step.event, step.job_id) for step in self.steps)
        for (answer, job_id), count in told.items():
            if happened[answer, job_id] < (count if answer == Operated.REQUEUED else 1):
                yield Violation("operators", f"{short(job_id)}: told {answer}, which is not in the log")

    def _answered(self) -> Iterator[Violation]:
        """A report that was answered as applied is in the log."""
        answers = [(end.job_id, end.attempt, end.status, end.event) for end in self._case.fleet.answers]
        answers += [
            (a.job_id, a.attempt, str(a.status), a.event) for a in (t.answer for t in self._case.strangers.told)
        ]
        for job_id, attempt, status, event in answers:
            if status in ("applied", "replayed") and (job_id, attempt, event) not in self._log:
                yield Violation("applied", f"{short(job_id)}.{attempt} was told {event}, which is not in the log")

    # what was charged, and to whom

    def _earned(self) -> Iterator[Violation]:
        """No outcome without a run that had it, no charge without what it is charged for."""
        for step in self.steps:
            if step.worker is not None and step.worker.startswith("stranger"):
                if step.event in ("succeeded", "retry_scheduled") and (
                    (step.job_id, step.attempt) not in self._case.strangers.reported
                ):
                    yield Violation("charged", f"{short(step.id)} {step.event}, and no stranger said so")
                continue
            problem = self._unearned(step)
            if problem is not None:
                yield Violation("charged", f"{short(step.id)} {step.event}: {problem}")

    def _unearned(self, step: Step) -> str | None:
        match step.event:
            case "succeeded":
                return None if self._some_run(step, _succeeded) else "no run of it succeeded"
            case "retry_scheduled":
                return None if self._some_run(step, _failed) or _timed_out(step) else "no run of it failed"
            case "snoozed":
                return None if self._some_run(step, _snoozed) else "no run of it asked for that"
            case "crashed":
                return None if self._some_run(step, _crashed) else "no runner of it died by itself"
            case "lease_lost":
                return self._not_to_blame(step)
            case "failed" if step.detail.get("by") == "reaper":
                return self._not_to_blame(step)
            case "failed":
                is_earned = self._some_run(step, _failed) or self._some_run(step, _crashed) or _timed_out(step)
                return None if is_earned else "no run of it failed or died"
        return None

    def _some_run(self, step: Step, is_so: Any) -> bool:
        return any(is_so(run) for run in self._runs.get(step.id, ()))

    def _not_to_blame(self, step: Step) -> str | None:
        """A lease is lost by who was killed or stopped, or could not reach the store; the log names the owner."""
        owner = next(s.worker for s in self.steps if s.id == step.id and s.event == "claimed") or ""
        computer = self._case.fleet.computers.get(owner)
        stopped = computer is not None and bool(computer.was_stopped)
        if owner in self._case.fleet.ended or self._case.faults.met.get(owner) or stopped:
            return None
        return f"nothing ever happened to {owner}"

    def _started_once(self) -> Iterator[Violation]:
        for runs in self._runs.values():
            if len(runs) > 1:
                yield Violation("an attempt starts once", f"{short(runs[0].id)} was started {len(runs)} times")

    def _poisoned(self) -> Iterator[Violation]:
        """A payload that cannot be decoded fails its own job, for that reason."""
        purged = {step.job_id for step in self.steps if step.event == "pruned"}
        ends = {step.job_id: step for step in self.steps if step.event in _FINISHED}
        for job_id in self._case.poisoned:
            end = ends.get(job_id)
            if job_id in purged or (end is not None and end.event == "cancelled"):
                continue
            code = None if end is None else (end.detail.get("error") or {}).get("code")
            if end is None or (end.event, code) != ("failed", INVALID_ARGUMENTS):
                yield Violation("poison payload", f"{short(job_id)} ended as {end and end.event} with {code}")

    def _ticked(self) -> Iterator[Violation]:
        """Every tick that fired made one job of its own. What an operator has purged since has left its event."""
        ticks, task = dict(self._case.disk.rows(_TICKS)), self._case.schedule_task
        made = {job for job, row in self._jobs.items() if row[5] == task}
        made |= {step.job_id for step in self.steps if step.event == "pruned" and step.detail["task"] == task}
        if set(ticks) != made or any(count != 1 for count in ticks.values()):
            yield Violation("ticks", f"{len(ticks)} fired ticks made {len(made)} jobs")


def _step(job_id: str, seq: int, event: str, before: str | None, attempt: int, worker: str | None, said: str) -> Step:
    return Step(job_id, seq, event, before, attempt, worker, json.loads(said or "{}"))


def _is_operators(step: Step) -> bool:
    return step.event in ("requeued", "cancel_requested") or (
        step.event == "cancelled" and step.from_state in ("pending", "retryable")
    )


def _succeeded(run: Run) -> bool:
    return isinstance(run.said, Succeeded)


def _failed(run: Run) -> bool:
    return isinstance(run.said, Failed)


def _snoozed(run: Run) -> bool:
    return isinstance(run.said, Snoozed)


def _crashed(run: Run) -> bool:
    return run.said is None and run.died_by is not None and "supervisor" not in run.died_by


def _timed_out(step: Step) -> bool:
    error = step.detail.get("error") or {}
    return error.get("code") == "timeout"
