"""Does an acknowledged enqueue survive a crash."""

from __future__ import annotations

import os
import shutil
from collections.abc import Iterator
from pathlib import Path

from holdfast.doctor.patient import Patient
from holdfast.domain.findings import Remark, info, ok, problem, warning
from holdfast.stores.inspection import postgres, sqlite

_EFFECTIVE = os.access in os.supports_effective_ids
_MOUNTS = Path("/proc/mounts")
_NETWORK = ("nfs", "cifs", "smb", "afs", "ceph", "gluster", "lustre", "9p", "fuse.sshfs", "fuse.gluster", "fuse.s3")
_FAULTS_SHOWN = 3
_ALMOST_FULL = 64 * 1024 * 1024


def durability(patient: Patient) -> Iterator[Remark]:
    if patient.is_postgres:
        yield from _postgres(patient)
    else:
        yield from _sqlite(patient)


def _postgres(patient: Patient) -> Iterator[Remark]:
    server = postgres.server(patient.store)
    faults = list(_faults(server)) + list(_unlogged(patient))
    yield from faults
    if not faults:
        yield ok(f"fsync and full_page_writes are on, synchronous_commit is {server.synchronous_commit}")


def _faults(server: postgres.Server) -> Iterator[Remark]:
    if not server.fsync:
        yield problem(
            "fsync is off: after a power cut the whole database may be damaged", "Set fsync = on in postgresql.conf."
        )
    if not server.full_page_writes:
        yield problem(
            "full_page_writes is off: a power cut may leave pages half written",
            "Set full_page_writes = on in postgresql.conf.",
        )
    if server.synchronous_commit == "off":
        yield problem(
            "synchronous_commit is off for this role and database: an enqueue that was acknowledged may be lost when"
            " the server crashes",
            "ALTER ROLE … SET synchronous_commit = on, or RESET it where it was set: role, database, server.",
        )
    if server.synchronous_commit == "local" and server.synchronous_standbys:
        yield problem(
            "synchronous_commit is local for this role and database, so no commit waits for the synchronous standby: an"
            " enqueue that was acknowledged may be lost when the standby is promoted",
            "ALTER ROLE … SET synchronous_commit = on, or RESET it where it was set: role, database, server.",
        )


def _unlogged(patient: Patient) -> Iterator[Remark]:
    for table in postgres.tables(patient.store):
        if table.unlogged:
            yield problem(
                f"{table.name} is UNLOGGED: it is emptied after a crash", f"ALTER TABLE {table.name} SET LOGGED;"
            )


def _sqlite(patient: Patient) -> Iterator[Remark]:
    mode = sqlite.journal_mode(patient.store)
    if mode == "wal":
        yield ok("the file is in WAL mode, and Holdfast's connections use synchronous=FULL")
    elif patient.is_blank:
        yield info("the file has no tables of Holdfast yet; whoever makes them puts it in WAL mode")
    else:
        yield warning(
            f"the file's journal_mode is {mode}: somebody changed it, and readers and writers now block each other",
            "Holdfast sets it back to WAL when it next opens the file; find the program that changes it.",
        )


def structure(patient: Patient) -> Iterator[Remark]:
    """Whether the pages of an embedded file still fit together."""
    faults = sqlite.faults(patient.store, patient.limits.structure_seconds)
    if faults is None:
        yield info(
            f"the file was looked through for {patient.limits.structure_seconds:g} s, which was not enough for all of"
            " it; no fault was found until then",
            "To look at all of it, run: sqlite3 FILE 'PRAGMA quick_check'",
        )
    elif faults:
        yield problem(
            f"the file is damaged: {'; '.join(faults[:_FAULTS_SHOWN])}",
            "Stop the workers, keep a copy, and restore it from a backup; what is readable comes out with"
            " `sqlite3 FILE .recover`. Then run `holdfast verify`.",
        )
    else:
        yield ok("the structure of the file is sound")


def file(patient: Patient) -> Iterator[Remark]:
    """Where an embedded file lies, and what lies around it."""
    path = patient.path
    kind = file_system(path, _MOUNTS.read_text() if _MOUNTS.exists() else "")
    if kind.startswith(_NETWORK):
        yield problem(
            f"the file is on a network file system ({kind}), where locks and shared memory cannot be relied on",
            "Move it to a disk of this machine, or use Postgres.",
        )
    else:
        yield ok(f"the file is on {kind or 'a local file system'}")
    unwritable = [
        str(place) for place in (path, path.parent) if not os.access(place, os.W_OK, effective_ids=_EFFECTIVE)
    ]
    if unwritable:
        yield problem(
            f"{' and '.join(unwritable)} cannot be written by this user",
            "Run as the user that owns the file; SQLite also writes beside it.",
        )
    yield from _sizes(patient, path)


def file_system(path: Path, mounts: str) -> str:
    """The kind of the file system that a path is on; empty when that is not known."""
    found = ""
    longest = -1
    resolved = str(path.resolve())
    for line in mounts.splitlines():
        parts = line.split(" ")
        if len(parts) < 3:
            continue
        place = parts[1].replace("\\040", " ").rstrip("/")
        inside = resolved == place or resolved.startswith(place + "/")
        if inside and len(place) >= longest:  # the later of two mounts on one place covers the earlier
            longest, found = len(place), parts[2]
    return found


def _sizes(patient: Patient, path: Path) -> Iterator[Remark]:
    wal = path.with_name(path.name + "-wal")
    size = wal.stat().st_size if wal.exists() else 0
    if size > patient.limits.wal_bytes:
        yield warning(
            f"the write-ahead log has grown to {size / 2**20:.0f} MiB: nobody could empty it",
            "Find the process that keeps a transaction open (fuser -v the file), and keep one worker running.",
        )
    free = shutil.disk_usage(path.parent).free
    text = f"{free / 2**20:,.0f} MiB are free on its disk"
    if free < _ALMOST_FULL:
        yield problem(text, "Make room: SQLite cannot commit on a full disk.")
    elif free < patient.limits.free_bytes:
        yield warning(text, "Make room, or let retention delete more: see `holdfast retention`.")
    else:
        yield info(text) if size else ok(text)
