"""What `holdfast doctor` says: what was looked at, what was found, and what to do about it."""

from __future__ import annotations

from dataclasses import dataclass
from enum import StrEnum


class Severity(StrEnum):
    OK = "ok"
    INFO = "info"  # worth knowing; nothing is wrong
    WARNING = "warning"  # works, but worse than it could, or not for long
    PROBLEM = "problem"  # does not work, or may lose what was acknowledged


@dataclass(frozen=True, slots=True)
class Remark:
    """A finding of one check, which knows its own name."""

    severity: Severity
    found: str
    advice: str = ""


@dataclass(frozen=True, slots=True)
class Finding:
    check: str
    severity: Severity
    found: str
    advice: str = ""


def ok(found: str) -> Remark:
    return Remark(Severity.OK, found)


def info(found: str, advice: str = "") -> Remark:
    return Remark(Severity.INFO, found, advice)


def warning(found: str, advice: str) -> Remark:
    return Remark(Severity.WARNING, found, advice)


def problem(found: str, advice: str) -> Remark:
    return Remark(Severity.PROBLEM, found, advice)
