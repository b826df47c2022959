"""The clocks of this machine and of the store."""

from __future__ import annotations

from collections.abc import Iterator
from datetime import UTC, datetime

from holdfast.doctor.patient import Patient
from holdfast.domain.findings import Remark, info, ok, warning
from holdfast.stores.inspection import postgres, sqlite

_KEEP_TIME = "Let a time service (chrony, systemd-timesyncd) keep both clocks."


def clock(patient: Patient) -> Iterator[Remark]:
    yield _compared(patient) if patient.is_postgres else _future(patient)


def _compared(patient: Patient) -> Remark:
    before = datetime.now(UTC)
    theirs = postgres.now(patient.store)
    after = datetime.now(UTC)
    # Anything within the round trip is no difference.
    seconds = (theirs - after).total_seconds() if theirs > after else min(0.0, (theirs - before).total_seconds())
    if abs(seconds) > patient.limits.clock_seconds:
        return warning(
            f"the store's clock is {abs(seconds):.1f} s {'ahead of' if seconds > 0 else 'behind'} this machine's",
            f"{_KEEP_TIME} Leases, schedules and delays go by the store's clock alone and stay right; ages on the"
            " screen, and times that your code computes here, do not.",
        )
    return ok(f"this machine's clock is within {max(abs(seconds), 0.1):.1f} s of the store's")


def _future(patient: Patient) -> Remark:
    newest = sqlite.newest_stamp(patient.store)
    if newest is None:
        return info("the file is empty: no time to compare with")
    seconds = (newest - datetime.now(UTC)).total_seconds()
    if seconds > patient.limits.clock_seconds:
        return warning(
            f"the file holds a time that is {seconds:.0f} s in the future: this machine's clock went back,"
            " or another machine writes to it",
            f"{_KEEP_TIME} Until that time comes, leases last longer and delayed jobs wait longer than they should.",
        )
    return ok("no time in the file is in the future")
