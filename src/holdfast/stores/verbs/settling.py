"""Settle many reports: decide purely, apply under the tokens, and answer each one.

A report that changed no row is either *busy* (the lease is still its own, somebody has the row locked), a *replay* (the
audit row of its attempt carries the same lease and the same report: the same answer again) or *refused*, which is
written down. Reports are checked before anything is stored.

What is applied also moves the breaker of the job's source, in the same transaction: so a report moves it once, however
often it is told.
"""

from __future__ import annotations

import json
import random
import time
from collections.abc import Iterable, Sequence
from dataclasses import dataclass, replace
from typing import Any

from holdfast.domain.answers import Settled, Status
from holdfast.domain.breaker import Ending as SourceEnding
from holdfast.domain.breaker import Failure, Success, Throttled
from holdfast.domain.errors import InvalidInput
from holdfast.domain.lifecycle import State
from holdfast.domain.outcome import (
    Crashed,
    Ending,
    Failed,
    Report,
    Snoozed,
    Succeeded,
)
from holdfast.domain.retry import DEFAULT_RETRY, RetryPolicy
from holdfast.domain.settle import Standing, Transition, cancelled_instead, settle
from holdfast.domain.spec import encode_json
from holdfast.stores import rows
from holdfast.stores.database import Database, Transaction
from holdfast.stores.statements import settle as sql
from holdfast.stores.statements.words import POSTGRES, Statement
from holdfast.stores.verbs import artifacts, lost, succeeding
from holdfast.stores.verbs.breaker import settle_sources
from holdfast.stores.verbs.checking import Checked, check

MAX_ERROR_TEXT = 16 * 1024
# A locked row is asked for again after 2, 4, 8 … ms, a quarter of a second in all; then the answer is "busy".
BUSY_TRIES = 7


def settle_reports(database: Database, reports: Sequence[Report]) -> list[Settled]:
    checked = [check(report) for report in reports]
    if not checked:
        return []
    answers: dict[int, Settled] = {}
    for batch in _one_a_job(checked):
        applied = _apply_patiently(database, batch)
        answers |= {id(report): applied[report.job_id] for report in batch if report.job_id in applied}
    open_reports = [report for report in checked if id(report) not in answers]
    if open_reports:
        with database.transaction() as transaction:
            answers |= _look_into(transaction, open_reports)
    return [answers[id(report)] for report in checked]


def _one_a_job(reports: Sequence[Checked]) -> list[list[Checked]]:
    """Several words about one job are heard one after the other: the first that its lease allows is applied."""
    if len({report.job_id for report in reports}) == len(reports):
        return [list(reports)]
    batches: list[list[Checked]] = []
    heard: dict[str, int] = {}
    for report in reports:
        turn = heard.get(report.job_id, 0)
        heard[report.job_id] = turn + 1
        if turn == len(batches):
            batches.append([])
        batches[turn].append(report)
    return batches


def _apply_patiently(database: Database, reports: Sequence[Checked]) -> dict[str, Settled]:
    """Apply what can be applied; ask again for rows that are locked while their lease is still ours."""
    done: dict[str, Settled] = {}
    waiting = list(reports)
    for tried in range(BUSY_TRIES):
        done |= _apply_once(database, waiting)
        if len(done) == len(reports):
            return done
        waiting = [report for report in waiting if report.job_id not in done]
        with database.statement() as transaction:
            held = _still_held(transaction, waiting)
        waiting = [report for report in waiting if report.job_id in held]
        if not waiting:
            return done
        time.sleep(0.002 * 2**tried)
    return done


def _apply_once(database: Database, reports: Sequence[Checked]) -> dict[str, Settled]:
    """Plain successes that no source has to learn of, which are nearly all of them, go by themselves. On SQLite, where
    a commit costs more than the rest, only if nothing else has to be committed."""
    done: dict[str, Settled] = {}
    plain = [report for report in reports if report.is_plain]
    if plain and (len(plain) == len(reports) or database.dialect == POSTGRES):
        done = succeeding.apply(database, plain)
        if len(done) == len(reports):
            return done
        reports = [report for report in reports if report.job_id not in done]
    elif all(isinstance(report.outcome, Succeeded) and not report.artifacts for report in reports):
        with database.statement() as transaction:
            done = apply(transaction, reports, sql.SETTLE_CALM).settled
        reports = [report for report in reports if report.job_id not in done]
        if not reports:
            return done
    with database.transaction() as transaction:
        applied = apply(transaction, reports)
        settle_sources(transaction, applied.endings)
    return done | applied.settled


@dataclass(frozen=True, slots=True)
class Applied:
    """The answers, by job; and what their ends say about sources, by source."""

    settled: dict[str, Settled]
    endings: dict[str, list[SourceEnding]]


def apply(transaction: Transaction, reports: Sequence[Checked], statement: Statement = sql.SETTLE) -> Applied:
    """One statement under the tokens. Only failures and snoozes need to be read first: their fate depends on what went
    before."""
    standings = _standings(transaction, reports)
    attempts = {report.job_id: report.attempt for report in reports}
    encoded = ",".join(
        _encode(report, settle(standings.get(report.job_id, Standing()), report.outcome, random.random()))
        for report in reports
    )
    found = transaction.rows(statement, {"rows": f"[{encoded}]"})
    if any(report.artifacts for report in reports):
        applied = {row[0] for row in found}
        artifacts.record(transaction, [a for report in reports if report.job_id in applied for a in report.artifacts])
    settled = {i: Settled(i, attempts[i], Status.APPLIED, event, State(state)) for i, event, state, _source in found}
    return Applied(settled, _endings(reports, settled, {row[0]: row[3] for row in found if row[3] is not None}))


def _endings(
    reports: Sequence[Checked], settled: dict[str, Settled], sources: dict[str, str]
) -> dict[str, list[SourceEnding]]:
    """In the order they were reported."""
    endings: dict[str, list[SourceEnding]] = {}
    if not sources:
        return endings
    for report in reports:
        source = sources.get(report.job_id)
        ending = None if source is None else _ending(report, settled[report.job_id])
        if source is not None and ending is not None:
            endings.setdefault(source, []).append(ending)
    return endings


def _ending(report: Checked, settled: Settled) -> SourceEnding | None:
    """Most ends say nothing about the source; what was overruled by a cancel is no failure of it either."""
    match report.outcome:
        case Succeeded():
            return Success()
        case Failed(error=error, told=False) if settled.state is not State.CANCELLED:
            return Failure(error.code, error.retryable, report.job_id)
        case Snoozed(delay_seconds=delay, throttled=True):
            return Throttled(delay, report.job_id)
        case _:
            return None


def _standings(transaction: Transaction, reports: Sequence[Checked]) -> dict[str, Standing]:
    undecided = [report.job_id for report in reports if isinstance(report.outcome, Failed | Crashed | Snoozed)]
    if not undecided:
        return {}
    found = transaction.rows(sql.STANDING, {"ids": json.dumps(undecided)})
    standings = {row[0]: standing(row[1:], transaction.dialect) for row in found}
    limited = [job_id for job_id, known in standings.items() if known.retry.snooze_limit is not None]
    if limited:
        for job_id, total in transaction.rows(sql.SNOOZED, {"ids": json.dumps(limited)}):
            standings[job_id] = replace(standings[job_id], snoozed_seconds=total)
    return standings


def standing(row: Sequence[Any], dialect: str) -> Standing:
    failures, crashes, max_attempts, max_crashes, retry, cancel_requested = row
    policy = _readable_policy(rows.parsed(retry, dialect))
    return Standing(failures, crashes, max_attempts, max_crashes, policy, bool(cancel_requested))


def _readable_policy(stored: Any) -> RetryPolicy:
    """An operator may have written anything there; no job and no neighbour of it may hang on that."""
    try:
        return RetryPolicy.from_json(stored)
    except InvalidInput:
        return DEFAULT_RETRY


def _encode(report: Checked, transition: Transition) -> str:
    extra = {"report": report.report_digest, **report.usage, **({"cache": report.cache} if report.cache else {})}
    row = {"id": report.job_id, "attempt": report.attempt, "token": report.digest}
    outcome = report.outcome
    if isinstance(outcome, Succeeded):
        row["result_ref"] = outcome.result_ref
    if report.progress is not None:
        row["progress"] = report.progress
    return encode_row(row, outcome, transition, extra, report.result)


def encode_row(
    row: dict[str, Any], ending: Ending, transition: Transition, extra: dict[str, Any], result: str | None = None
) -> str:
    """One JSON object of the settling statement; the result's text goes in as it is."""
    error = None if transition.error is None else transition.error.to_json()
    attached = {} if error is None else {"error": error}
    row |= {
        "event": transition.event,
        "state": transition.state,
        "failures": transition.failures,
        "crashes": transition.crashes,
        "delay": transition.delay_seconds,
        "error": error,
        "detail": {**extra, **transition.detail, **attached},
        "cancel_detail": None,
    }
    if transition.state is not State.SUCCEEDED:
        row["cancel_detail"] = {**extra, **cancelled_instead(ending).detail, **attached}
    text = encode_json(row)
    return text if result is None else f'{text[:-1]},"result":{result}}}'


def _still_held(transaction: Transaction, reports: Iterable[Checked]) -> set[str]:
    reports = list(reports)
    known = lost.look_into(transaction, (report.job_id for report in reports))
    return {r.job_id for r in reports if known.holds(r.job_id, r.attempt, r.digest)}


def _look_into(transaction: Transaction, reports: Sequence[Checked]) -> dict[int, Settled]:
    known = lost.look_into(transaction, (report.job_id for report in reports))
    answers: dict[int, Settled] = {}
    refused: list[lost.Refused] = []
    for report in reports:
        answer = judge(known, report)
        answers[id(report)] = answer
        if answer.status is Status.REFUSED and answer.reason is not None:
            refused.append(lost.Refused(report.job_id, report.attempt, report.verb, answer.reason, report.worker))
    lost.record(transaction, refused)
    return answers


def judge(known: lost.Known, report: Checked) -> Settled:
    if known.holds(report.job_id, report.attempt, report.digest):
        return Settled(report.job_id, report.attempt, Status.BUSY)
    ended = known.endings.get((report.job_id, report.attempt))
    if ended is not None and (ended.lease, ended.report) == (report.digest, report.report_digest):
        return Settled(report.job_id, report.attempt, Status.REPLAYED, ended.event, State(ended.state))
    reason = known.report_reason(report.job_id, report.attempt, report.digest)
    return Settled(report.job_id, report.attempt, Status.REFUSED, reason=reason)
