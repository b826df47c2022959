"""Tables, triggers and indexes: are they those of this Holdfast, and do they work."""

from __future__ import annotations

from collections.abc import Iterator

from holdfast.doctor.patient import Patient
from holdfast.domain.findings import Remark, info, ok, problem, warning
from holdfast.stores import upgrade
from holdfast.stores.guards import installed
from holdfast.stores.inspection import postgres, sqlite, tables
from holdfast.stores.schema import POSTGRES_INDEXES, metadata

DAY_SECONDS = 86_400.0
_REPAIR = (
    "Run `holdfast db upgrade`, as the role that owns the tables: it installs them again; then `holdfast verify`, which"
    " shows what was missed."
)


def schema(patient: Patient) -> Iterator[Remark]:
    if patient.missing_parts:
        yield problem(
            f"parts of the schema are missing: {', '.join(patient.missing_parts)}",
            "Somebody took them away, or a restore was not finished, and no upgrade brings them back: restore the"
            " database from a backup, then run `holdfast verify`.",
        )
    elif patient.newer is not None:
        yield info(patient.newer, "Deploy the newer release everywhere, and run its doctor.")
    elif patient.mismatch is None:
        yield ok(f"schema {upgrade.head()}, which is what this Holdfast needs")
    elif "newer Holdfast" in patient.mismatch:
        yield problem(patient.mismatch, "Install the version of the package that the rest of the fleet has.")
    elif patient.is_postgres:
        yield problem(patient.mismatch, "Run `holdfast db upgrade`, as the role that owns the tables.")
    else:
        yield info(patient.mismatch, "Nothing has to be done: the next worker or enqueue upgrades an embedded file.")


def guards(patient: Patient) -> Iterator[Remark]:
    """The triggers that refuse illegal moves and write the audit log."""
    expected = installed.expected(patient.store.dialect)
    found = tables.guards(patient.store)
    disabled = sorted(guard for guard in expected if found.get(guard) is False)
    missing = [] if patient.newer else sorted(expected - set(found))  # a newer release may do without some
    if disabled:
        yield problem(
            f"triggers are disabled: {', '.join(map(str, disabled))} (or are missing on a partition of it);"
            " moves are neither checked nor written to the audit log",
            _REPAIR,
        )
    if missing:
        yield problem(f"triggers are missing: {', '.join(map(str, missing))}", _REPAIR)
    if patient.is_postgres and not postgres.server(patient.store).triggers_fire:
        yield problem(
            "session_replication_role is replica for this role: no trigger fires, nothing is audited",
            "ALTER ROLE … RESET session_replication_role (and for the database); then `holdfast verify`.",
        )
    elif not missing and not disabled:
        yield ok(f"{sum(guard in found for guard in expected)} triggers are in place")


def indexes(patient: Patient) -> Iterator[Remark]:
    expected = {str(index.name) for table in metadata.tables.values() for index in table.indexes}
    if patient.is_postgres:
        found = postgres.indexes(patient.store)
        invalid = sorted(name for name, usable in found.items() if not usable)
        present = set(found)
    else:
        invalid, present = [], sqlite.indexes(patient.store)
        expected -= POSTGRES_INDEXES
    for name in invalid:
        yield warning(f"the index {name} is invalid and not used", f"REINDEX INDEX CONCURRENTLY {name};")
    missing = [] if patient.newer else sorted(expected - present)
    if missing:
        yield warning(
            f"indexes are missing: {', '.join(missing)}; claims or retention read whole tables",
            "Restore them from a `pg_dump --schema-only` of a database of the same schema, or .schema on SQLite.",
        )
    if not missing and not invalid:
        yield ok(f"{len(present)} indexes can be used")


def partitions(patient: Patient) -> Iterator[Remark]:
    """Of the audit log, where an operator has made some: what there is none for goes to the default one."""
    ahead = postgres.partitions_ahead(patient.store)
    if ahead is None:
        return
    text = f"the partitions of the audit log reach {ahead / DAY_SECONDS:.1f} days ahead"
    if ahead < patient.limits.partitions_ahead_seconds:
        yield warning(text, "Make more with holdfast_add_partition, every night (docs/scale.md).")
    else:
        yield ok(text)
