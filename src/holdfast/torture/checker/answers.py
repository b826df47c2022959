"""What clients of the worker contract and operators were told, held against one job's history.

A report that is answered with yes is recorded once, under its lease; told again, it is answered the same (a replay). So
a yes stands in the log as exactly one outcome of that lease, whichever of the tellings was the one that counted.

A no has a reason. `lease_lost`: somebody without the token had ended the lease before, which only the reaper does. What
was told earlier and never answered cannot have been applied either: had it been, the lease had ended by a report, and
the answer were `conflicting_report` (or yes, for the same report). Nor can it be applied later: the lease is over.
`conflicting_report`: an outcome of that lease is on record. `unknown_lease` and `unknown_job` are untrue of a lease
that was given.

A cancel that is done is on record as `cancelled`, or as `cancel_requested`; after that the lease ends in `cancelled` or
`succeeded`. Only a requeue lets the job live on.
"""

from __future__ import annotations

from collections.abc import Iterator

from holdfast.domain.answers import Reason
from holdfast.domain.lifecycle import Event
from holdfast.torture.checker.findings import Findings
from holdfast.torture.checker.life import Life, is_outcome, is_worker_lost
from holdfast.torture.checker.rules import Rule
from holdfast.torture.evidence import Told
from holdfast.torture.notes import Claimed, Operated, Reported

# What a report of each kind may come to. A cancel request turns all but a success into `cancelled`.
_COMES_TO: dict[str, tuple[str, ...]] = {
    "complete": (Event.SUCCEEDED,),
    "fail": (Event.RETRY_SCHEDULED, Event.CRASHED, Event.FAILED, Event.CANCELLED),
    "release": (Event.RELEASED, Event.SNOOZED, Event.FAILED, Event.CANCELLED),
}
_AFTER_A_CANCEL = (Event.CANCELLED, Event.SUCCEEDED)


def check_answers(life: Life, told: Told, found: Findings) -> None:
    for claim in told.claims:
        found.held(Rule.UNTRUE_ANSWER)
        _add(found, Rule.UNTRUE_ANSWER, _claim_fault(life, claim), life)
    for report in told.reports:
        found.held(Rule.UNTRUE_ANSWER)
        if report.ok:
            _add(found, Rule.UNTRUE_ANSWER, _yes_fault(life, report), life)
        else:
            _add(found, Rule.UNTRUE_ANSWER, _no_fault(life, report), life)
            _check_refused(life, report, found)
    for fault in _operations(life, told, found):
        _add(found, Rule.OPERATED, fault, life)


def check_cancels(life: Life, found: Findings) -> None:
    """Of every job, whoever asked for it."""
    asked = False
    for event in life.events:
        asked = asked or event.event == Event.CANCEL_REQUESTED
        if asked and is_outcome(event):
            asked = False
            found.held(Rule.OPERATED)
            if event.event not in _AFTER_A_CANCEL:
                fault = f"a cancel was requested, and the lease ended in {event.event} (seq {event.seq})"
                _add(found, Rule.OPERATED, fault, life)


def _add(found: Findings, rule: Rule, fault: str | None, life: Life) -> None:
    if fault is not None:
        found.add(rule, fault, life.job_id, length=len(life.events))


def _claim_fault(life: Life, claim: Claimed) -> str | None:
    facts = [(event.attempt, event.lease, event.worker) for event in life.claims]
    if facts.count((claim.attempt, claim.lease, claim.worker)) == 1:
        return None
    return f"{claim.worker} was given attempt {claim.attempt} under lease {claim.lease[:8]}; the log has no such claim"


def _yes_fault(life: Life, report: Reported) -> str | None:
    said = f"{report.verb} of attempt {report.attempt} under lease {report.lease[:8]} was answered with yes"
    outcomes = life.outcomes(report.attempt, report.lease)
    if len(outcomes) != 1:
        return f"{said}; the log has {len(outcomes) or 'no'} outcome{'s' * (len(outcomes) > 1)} of it"
    if outcomes[0].event not in _COMES_TO[report.verb]:
        return f"{said}; the log says {outcomes[0].event}"
    return None


def _no_fault(life: Life, report: Reported) -> str | None:
    said = f"{report.verb} of attempt {report.attempt} under lease {report.lease[:8]} was refused ({report.reason})"
    was_given = any((event.attempt, event.lease) == (report.attempt, report.lease) for event in life.claims)
    match report.reason:
        case Reason.UNKNOWN_JOB | Reason.UNKNOWN_LEASE if was_given:
            return f"{said}; the log says that this very lease was given"
        case Reason.LEASE_LOST | Reason.CONFLICTING_REPORT if not life.outcomes(report.attempt, report.lease):
            return f"{said}; the log has no end of that lease"
        case _:
            return None


def _check_refused(life: Life, report: Reported, found: Findings) -> None:
    if report.reason != Reason.LEASE_LOST:
        return
    found.held(Rule.REFUSED_BUT_APPLIED)
    for event in life.outcomes(report.attempt, report.lease):
        # What the reaper may do; anything else needs the token.
        if event.event in (Event.LEASE_LOST, Event.CANCELLED) or is_worker_lost(event):
            continue
        said = f"{report.verb} of attempt {report.attempt} under lease {report.lease[:8]} was refused ({report.reason})"
        _add(found, Rule.REFUSED_BUT_APPLIED, f"{said}; the log has {event.event} under that lease", life)


def _operations(life: Life, told: Told, found: Findings) -> Iterator[str]:
    done = [operation for operation in told.operations if operation.done]
    found.held(Rule.OPERATED, len(done))
    names = [event.event for event in life.events]
    for operation in done:
        if operation.verb == "cancel" and not any(name in names for name in _proofs(operation)):
            yield f"a cancel was answered with done ({operation.state}); the log has none"
    requeues = sum(operation.verb == "requeue" for operation in done)
    if requeues > names.count(Event.REQUEUED):
        yield f"{requeues} requeued by its operators' answers, {names.count(Event.REQUEUED)} by the log"


def _proofs(operation: Operated) -> tuple[str, ...]:
    if operation.state == "cancelled":
        return (Event.CANCELLED,)
    return (Event.CANCELLED, Event.CANCEL_REQUESTED) if operation.state is None else (Event.CANCEL_REQUESTED,)
