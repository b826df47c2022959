"""`holdfast doctor`: every check there is, in the order in which they are made.

A check is a small function from what can be looked at to remarks. It reads only; the exceptions are one probe file in
the artifact store and one NOTIFY that wakes nobody. What fails in a check is a finding about that check, and the others
are made all the same.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator
from dataclasses import dataclass
from enum import Enum

from holdfast.doctor import clock, configuration, durability, machine, schema, server, store, work
from holdfast.doctor.patient import Limits, Patient
from holdfast.domain.findings import Finding, Remark, Severity, problem, warning

__all__ = ["CHECKS", "Check", "Limits", "Patient", "examine"]

_INSUFFICIENT_PRIVILEGE = "42501"


class Needs(Enum):
    NOTHING = "nothing"
    SETTINGS = "settings"
    STORE = "a store that answers"
    TABLES = "the tables of this Holdfast"


@dataclass(frozen=True, slots=True)
class Check:
    name: str
    needs: Needs
    look: Callable[[Patient], Iterable[Remark]]
    only_on: str | None = None  # postgresql or sqlite


CHECKS = (
    Check("settings", Needs.NOTHING, configuration.settings),
    Check("environment", Needs.NOTHING, configuration.environment),
    Check("machine", Needs.NOTHING, machine.machine),
    Check("time zones", Needs.NOTHING, machine.time_zones),
    Check("store", Needs.SETTINGS, store.store),
    Check("library", Needs.STORE, store.library, "sqlite"),
    Check("file", Needs.STORE, durability.file, "sqlite"),
    Check("structure", Needs.STORE, durability.structure, "sqlite"),
    Check("durability", Needs.STORE, durability.durability),
    Check("pooler", Needs.STORE, server.pooler, "postgresql"),
    Check("session", Needs.STORE, server.session, "postgresql"),
    Check("schema", Needs.STORE, schema.schema),
    Check("rights", Needs.TABLES, store.rights, "postgresql"),
    Check("guards", Needs.TABLES, schema.guards),
    Check("indexes", Needs.TABLES, schema.indexes),
    Check("partitions", Needs.TABLES, schema.partitions, "postgresql"),
    Check("clock", Needs.TABLES, clock.clock),
    Check("connections", Needs.TABLES, server.connections, "postgresql"),
    Check("vacuum", Needs.TABLES, server.vacuum, "postgresql"),
    Check("transactions", Needs.STORE, server.transactions, "postgresql"),
    Check("replication", Needs.STORE, server.replication, "postgresql"),
    Check("notifications", Needs.STORE, server.notifications, "postgresql"),
    Check("workers", Needs.TABLES, work.workers),
    Check("duties", Needs.TABLES, work.duties),
    Check("stuck", Needs.TABLES, work.stuck),
    Check("schedules", Needs.TABLES, work.schedules),
    Check("artifacts", Needs.SETTINGS, work.artifacts),
)


def examine(patient: Patient) -> Iterator[Finding]:
    """Admit the patient and make every check that can be made."""
    patient.admit()
    try:
        for check in CHECKS:
            if _can_be_made(check, patient):
                for remark in _looked(check, patient):
                    yield Finding(check.name, remark.severity, remark.found, remark.advice)
    finally:
        patient.discharge()


def _can_be_made(check: Check, patient: Patient) -> bool:
    if check.only_on is not None and (patient.database is None or patient.database.dialect != check.only_on):
        return False
    match check.needs:
        case Needs.NOTHING:
            return True
        case Needs.SETTINGS:
            return patient.settings is not None
        case Needs.STORE:
            return patient.database is not None
        case Needs.TABLES:
            return patient.database is not None and patient.mismatch is None and not patient.missing_parts


def _looked(check: Check, patient: Patient) -> list[Remark]:
    try:
        return list(check.look(patient))
    except Exception as error:
        return [_not_looked_at(error)]


def _not_looked_at(error: Exception) -> Remark:
    """What nobody has looked at is not in order, unless all that was wanting is the right to look."""
    said = f"this could not be looked at: {type(error).__name__}: {str(error).strip().partition(chr(10))[0]}"
    if getattr(error, "sqlstate", None) == _INSUFFICIENT_PRIVILEGE:
        return warning(said, "Run the doctor again as a role with more rights.")
    return problem(
        said, "Correct the other problems first, and run the doctor again; if that does not help, please report it."
    )


def worst(findings: Iterable[Finding]) -> Severity:
    order = list(Severity)
    return max((finding.severity for finding in findings), key=order.index, default=Severity.OK)
