"""`holdfast doctor`"""

from __future__ import annotations

from typing import TYPE_CHECKING, Annotated

import typer

from holdfast.cli import output
from holdfast.cli.session import Json, begin
from holdfast.domain.findings import Severity
from holdfast.settings import mask_secrets

if TYPE_CHECKING:
    from holdfast.domain.findings import Finding

_MARKS = {Severity.OK: "ok", Severity.INFO: "info", Severity.WARNING: "WARNING", Severity.PROBLEM: "PROBLEM"}
_STYLES = {Severity.OK: "green", Severity.INFO: "", Severity.WARNING: "yellow", Severity.PROBLEM: "red"}
_UNREACHABLE = 3


def doctor(
    context: typer.Context,
    quiet: Annotated[bool, typer.Option("--quiet", help="Only warnings and problems.")] = False,
    json: Json = False,
) -> None:
    """Look at settings, store, machine and fleet; say what is wrong and what to do.

    Exit code 1 when there is a problem, 3 when the store cannot be reached.
    """
    from holdfast.doctor import Patient, examine, worst

    session = begin(context, json)
    patient = Patient(flags={"database_url": session.database})
    found = []
    for finding in examine(patient):
        found.append(finding)
        if not session.json and not (quiet and finding.severity in (Severity.OK, Severity.INFO)):
            _print(finding)
    is_sound = worst(found) is not Severity.PROBLEM
    if session.json:
        output.document({"ok": is_sound, "findings": [_masked(finding) for finding in found]})
    else:
        output.line(_summary(found))
    if patient.is_away:
        raise typer.Exit(_UNREACHABLE)
    if not is_sound:
        raise typer.Exit(1)


def _masked(finding: Finding) -> dict[str, str]:
    return {
        "check": finding.check,
        "severity": str(finding.severity),
        "found": mask_secrets(finding.found),
        "advice": mask_secrets(finding.advice),
    }


def _print(finding: Finding) -> None:
    style = _STYLES[finding.severity]
    output.line(f"{_MARKS[finding.severity]:8} {finding.check}: {mask_secrets(finding.found)}", style)
    if finding.advice:
        output.line(f"{'':8} → {mask_secrets(finding.advice)}")


def _summary(found: list[Finding]) -> str:
    problems = sum(finding.severity is Severity.PROBLEM for finding in found)
    warnings = sum(finding.severity is Severity.WARNING for finding in found)
    if not problems and not warnings:
        return "Everything is in order."
    return f"{_number(problems, 'problem')}, {_number(warnings, 'warning')}."


def _number(count: int, word: str) -> str:
    return f"{count} {word}{'' if count == 1 else 's'}"
