"""Plain successes: nothing to decide, and nothing to read first."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from operator import attrgetter

from holdfast.domain.answers import Settled, Status
from holdfast.domain.lifecycle import Event, State
from holdfast.stores.database import Database
from holdfast.stores.statements.settle import SUCCEED
from holdfast.stores.statements.words import POSTGRES
from holdfast.stores.verbs.checking import Checked

_job_id = attrgetter("job_id")


def apply(database: Database, reports: Sequence[Checked]) -> dict[str, Settled]:
    """The answers to those that were applied, by job. None, if others have had some of the rows for too long."""
    applied = _together(database, reports) if database.dialect == POSTGRES else _one_by_one(database, reports)
    return {
        report.job_id: Settled(report.job_id, report.attempt, Status.APPLIED, Event.SUCCEEDED, State.SUCCEEDED)
        for report in applied
    }


def _together(database: Database, reports: Sequence[Checked]) -> Sequence[Checked]:
    reports = sorted(reports, key=_job_id)  # as `holdfast_succeed` wants them
    given = {
        "ids": _array(report.job_id for report in reports),
        "attempts": _array(str(report.attempt) for report in reports),
        "tokens": _array(report.digest for report in reports),
        "details": _array(_quoted(_detail(report)) for report in reports),
        "results": _results(reports),
    }
    with database.statement() as transaction:
        try:
            [[applied]] = transaction.rows(SUCCEED, given)
        except database.lock_errors:
            return []
    if applied is None:
        return reports
    held = set(applied)
    return [report for report in reports if report.job_id in held]


def _one_by_one(database: Database, reports: Sequence[Checked]) -> list[Checked]:
    """In one transaction; on SQLite a statement is a call, not a journey."""
    with database.transaction() as transaction:
        return [report for report in reports if transaction.changes(SUCCEED, _row(report))]


def _row(report: Checked) -> dict[str, object]:
    return {
        "id": report.job_id,
        "attempt": report.attempt,
        "token": report.digest,
        "detail": _detail(report),
        "result": report.result,
    }


def _detail(report: Checked) -> str:
    figures = "".join([f',"{name}":{value}' for name, value in report.usage.items()])
    return f'{{"report":"{report.report_digest}"{figures}}}'


def _results(reports: Sequence[Checked]) -> str | None:
    if all(report.result is None for report in reports):
        return None
    return _array("NULL" if report.result is None else _quoted(report.result) for report in reports)


def _array(elements: Iterable[str]) -> str:
    """As Postgres reads an array. To make it here is a fifth of the work of handing over a list."""
    return f"{{{','.join(elements)}}}"


def _quoted(text: str) -> str:
    escaped = text.replace("\\", "\\\\").replace('"', '\\"')
    return f'"{escaped}"'
