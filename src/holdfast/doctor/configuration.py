"""Settings and environment."""

from __future__ import annotations

import difflib
from collections.abc import Iterator

from holdfast.doctor.patient import Patient
from holdfast.domain.findings import Remark, info, ok, problem, warning
from holdfast.settings import mask_url, places, variables

# Set by Holdfast itself for runners and commands, and by its own test suite.
_NOT_SETTINGS = ("HOLDFAST_ATTEMPT", "HOLDFAST_JOB_ID", "HOLDFAST_QUEUE", "HOLDFAST_TASK", "HOLDFAST_TIMEOUT_SECONDS")
_NOT_SETTINGS_PREFIXES = ("HOLDFAST_RUNNER_", "HOLDFAST_TEST_")


def settings(patient: Patient) -> Iterator[Remark]:
    for wrong in patient.wrong_settings:
        yield problem(wrong, "Correct it where it was given; until then no Holdfast command works here.")
    if patient.settings is None:
        return
    yield ok(f"the store is {mask_url(patient.settings.database_url)}, {_origin(patient, 'database_url')}")
    given = places(patient.flags, patient.environment, patient.directory)
    others = [f"{name} ({place})" for name, place in given.items() if name != "database_url"]
    if others:
        yield ok(f"also set: {', '.join(others)}")


def _origin(patient: Patient, name: str) -> str:
    place = places(patient.flags, patient.environment, patient.directory).get(name)
    return "which is the default" if place is None else f"from {place}"


def environment(patient: Patient) -> Iterator[Remark]:
    known = variables()
    unknown = [
        name
        for name in sorted(patient.environment)
        if name.startswith("HOLDFAST_")
        and name not in (*known, *_NOT_SETTINGS)
        and not name.startswith(_NOT_SETTINGS_PREFIXES)
    ]
    for name in unknown:
        near = difflib.get_close_matches(name, known, n=1, cutoff=0.7)
        advice = f"Did you mean {near[0]}?" if near else f"The settings are {', '.join(sorted(known))}."
        yield warning(f"the variable {name} is set, and no setting has that name", advice)
    empty = [name for name in known if patient.environment.get(name) == ""]
    if empty:
        yield info(f"set but empty, so not in force: {', '.join(empty)}")
    if not unknown:
        yield ok("every HOLDFAST_ variable is a setting")
