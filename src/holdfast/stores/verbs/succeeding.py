"""Plain successes: nothing to decide, and nothing to read first."""

from __future__ import annotations

from collections.abc import Sequence
from operator import attrgetter

from holdfast.domain.answers import Settled, Status
from holdfast.domain.lifecycle import Event, State
from holdfast.domain.spec import encode_json
from holdfast.stores.arrays import array, quoted
from holdfast.stores.database import Database
from holdfast.stores.statements.settle import SUCCEED
from holdfast.stores.statements.words import POSTGRES
from holdfast.stores.verbs.checking import Checked

_job_id = attrgetter("job_id")


def apply(database: Database, reports: Sequence[Checked]) -> dict[str, Settled]:
    """The answers to those that were applied, by job. None, if others have had some of the rows for too long."""
    applied = _on_postgres(database, reports) if database.dialect == POSTGRES else _on_sqlite(database, reports)
    return {
        report.job_id: Settled(report.job_id, report.attempt, Status.APPLIED, Event.SUCCEEDED, State.SUCCEEDED)
        for report in applied
    }


def _on_postgres(database: Database, reports: Sequence[Checked]) -> Sequence[Checked]:
    reports = sorted(reports, key=_job_id)  # as `holdfast_succeed` wants them
    given = {
        "ids": array(report.job_id for report in reports),
        "attempts": array(str(report.attempt) for report in reports),
        "tokens": array(report.digest for report in reports),
        "details": array(quoted(_detail(report)) for report in reports),
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


def _on_sqlite(database: Database, reports: Sequence[Checked]) -> list[Checked]:
    given = [(report.job_id, report.attempt, report.digest, _detail(report), report.result) for report in reports]
    with database.statement() as transaction:
        held = {job_id for [job_id] in transaction.rows(SUCCEED, {"rows": encode_json(given)})}
    return [report for report in reports if report.job_id in held]


def _detail(report: Checked) -> str:
    figures = "".join([f',"{name}":{value}' for name, value in report.usage.items()])
    return f'{{"report":"{report.report_digest}"{figures}}}'


def _results(reports: Sequence[Checked]) -> str | None:
    if all(report.result is None for report in reports):
        return None
    return array("NULL" if report.result is None else quoted(report.result) for report in reports)
