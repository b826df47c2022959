"""Faults of an embedded file, and of the machine and the settings around it."""

from __future__ import annotations

import os
import resource
import shutil
import sqlite3
import sys
import zoneinfo
from collections.abc import Iterator
from contextlib import closing, contextmanager
from dataclasses import replace
from pathlib import Path

import pytest

from holdfast.doctor.durability import file_system
from holdfast.domain.findings import Severity
from holdfast.domain.job import NewJob
from holdfast.throwaway.account import server_account
from holdfast.throwaway.workdir import Workdir
from holdfast.wiring.sql import open_store
from tests.acceptance.command_line import InProcess
from tests.doctor.conftest import PATIENT, Ground, examined, grave

PROBLEM, WARNING, INFO = Severity.PROBLEM, Severity.WARNING, Severity.INFO


def test_a_file_in_good_order_gives_no_warning_and_is_left_as_it_is(file: Ground) -> None:
    before = file.path.read_bytes()
    assert grave(file.examined()) == []
    assert file.path.read_bytes() == before
    assert {entry.name for entry in file.folder.iterdir()} == {"jobs.db"}


def test_a_file_that_nobody_has_made_yet_is_not_made(tmp_path: Path) -> None:
    findings = examined(f"sqlite:///{tmp_path / 'none.db'}", tmp_path)
    assert grave(findings) == []
    [store] = [finding for finding in findings if finding.check == "store"]
    assert store.severity is INFO
    assert list(tmp_path.iterdir()) == []


def test_a_file_that_is_not_a_database(tmp_path: Path) -> None:
    (tmp_path / "jobs.db").write_text("something else, and a good deal of it" * 100)
    [finding] = grave(examined(f"sqlite:///{tmp_path / 'jobs.db'}", tmp_path))
    assert (finding.check, finding.severity) == ("store", PROBLEM)
    assert str(tmp_path / "jobs.db") in finding.found
    assert "backup" in finding.advice


def test_another_journal_mode(file: Ground) -> None:
    file("PRAGMA journal_mode = DELETE")
    [finding] = grave(file.examined())
    assert (finding.check, finding.severity) == ("durability", WARNING)
    assert "journal_mode is delete" in finding.found
    assert "WAL" in finding.advice
    open_store(file.url).close()  # as it says, this is all that is needed
    assert grave(file.examined()) == []


def test_a_log_that_nobody_empties(file: Ground) -> None:
    with closing(sqlite3.connect(file.path)) as writer:
        writer.execute("PRAGMA wal_autocheckpoint = 0")
        writer.execute("CREATE TABLE ballast (content)")
        writer.execute("INSERT INTO ballast VALUES (zeroblob(1000000))")
        writer.commit()
        assert grave(file.examined()) == []
        [finding] = grave(file.examined(replace(PATIENT, wal_bytes=500_000)))
        assert (finding.check, finding.severity) == ("file", WARNING)
        assert "write-ahead log" in finding.found


def test_a_full_disk(file: Ground) -> None:
    [finding] = grave(file.examined(replace(PATIENT, free_bytes=2**62)))
    assert (finding.check, finding.severity) == ("file", WARNING)
    assert "free on its disk" in finding.found
    assert "Make room" in finding.advice


@pytest.fixture
def unprivileged(new_file: Path) -> Iterator[Ground]:
    """A copy of the file in a folder of somebody who is not root; what follows is done as that user."""
    assert grave(examined(f"sqlite:///{new_file}", new_file.parent)) == []  # all that it imports is imported
    account = server_account()
    workdir = Workdir(account)
    path = Path(shutil.copy(new_file, workdir.path / "jobs.db"))
    before = os.geteuid()
    try:
        if account is not None:
            account.give(workdir.path)
            os.seteuid(account.uid)
        yield Ground(f"sqlite:///{path}", workdir.path)
    finally:
        os.seteuid(before)
        workdir.remove()


def test_a_file_that_may_not_be_written(unprivileged: Ground) -> None:
    assert grave(unprivileged.examined()) == []
    unprivileged.path.chmod(0o400)
    [finding] = grave(unprivileged.examined())
    assert (finding.check, finding.severity) == ("file", PROBLEM)
    assert "cannot be written" in finding.found


def test_a_folder_that_may_not_be_entered(unprivileged: Ground) -> None:
    closed = unprivileged.folder / "closed"
    closed.mkdir(mode=0o000)
    url = f"sqlite:///{closed / 'jobs.db'}"
    [finding] = grave(examined(url, unprivileged.folder))
    assert (finding.check, finding.severity) == ("store", PROBLEM)
    assert f"the database file {closed / 'jobs.db'} cannot be used: Permission denied" in finding.found
    assert "folder" in finding.advice


def test_a_name_that_no_file_can_have(tmp_path: Path) -> None:
    url = f"sqlite:///{tmp_path / ('n' * 300)}"
    [finding] = grave(examined(url, tmp_path))
    assert (finding.check, finding.severity) == ("store", PROBLEM)
    assert "File name too long" in finding.found
    assert "folder" in finding.advice
    for command in (("jobs", "list"), ("db", "current"), ("db", "upgrade"), ("enqueue", "task"), ("verify",)):
        InProcess(tmp_path, url)(*command).refused("cannot be used: File name too long")


def test_an_empty_file_is_called_that(tmp_path: Path) -> None:
    (tmp_path / "jobs.db").touch()
    findings = examined(f"sqlite:///{tmp_path / 'jobs.db'}", tmp_path)
    assert grave(findings) == []
    [durability] = [finding for finding in findings if finding.check == "durability"]
    assert "no tables of Holdfast yet" in durability.found


@pytest.fixture
def damaged(file: Ground) -> Ground:
    """A page in the middle of the jobs is overwritten; its first pages are whole."""
    store = open_store(file.url)
    store.enqueue_many([NewJob(task="work", payload={"text": "x" * 500}) for _ in range(200)])
    store.close()
    [(page_size,)] = file("PRAGMA page_size")
    number = file.path.read_bytes().rindex(b"x" * 500) // page_size
    with file.path.open("r+b") as opened:
        opened.seek(number * page_size)
        opened.write(b"\xff" * page_size)
    return file


def test_a_damaged_file(damaged: Ground) -> None:
    findings = damaged.examined()
    [structure] = [finding for finding in findings if finding.check == "structure"]
    assert structure.severity is PROBLEM
    assert "the file is damaged: " in structure.found
    assert "backup" in structure.advice


def test_a_file_that_is_too_large_to_be_looked_through(file: Ground) -> None:
    with closing(sqlite3.connect(file.path)) as writer, writer:
        writer.execute("CREATE TABLE ballast (content)")
        writer.execute(
            "WITH RECURSIVE n (i) AS (SELECT 1 UNION ALL SELECT i + 1 FROM n WHERE i < 50000)"
            " INSERT INTO ballast SELECT i FROM n"
        )
    assert grave(file.examined()) == []
    findings = file.examined(replace(PATIENT, structure_seconds=0.0))
    assert grave(findings) == []
    [structure] = [finding for finding in findings if finding.check == "structure"]
    assert structure.severity is INFO
    assert "not enough for all of it" in structure.found


@pytest.mark.parametrize(
    ("statement", "part"),
    [
        ("DROP TABLE holdfast_artifacts", "holdfast_artifacts"),
        ("DROP TABLE holdfast_meta", "holdfast_meta"),
        ("DROP TABLE holdfast_schema_version", "holdfast_schema_version"),
        ("ALTER TABLE holdfast_duties DROP COLUMN holder", "holdfast_duties.holder"),
    ],
)
def test_a_table_or_column_that_is_gone(file: Ground, statement: str, part: str) -> None:
    file(statement)
    [finding] = grave(file.examined())
    assert (finding.check, finding.severity) == ("schema", PROBLEM)
    assert finding.found == f"parts of the schema are missing: {part}"
    assert "backup" in finding.advice


def test_what_could_not_be_looked_at_is_not_in_order(file: Ground) -> None:
    store = open_store(file.url)
    store.enqueue(NewJob(task="work"))
    store.close()
    file("INSERT INTO holdfast_duties (name, ticked_at) VALUES ('reaper', 'yesterday')")
    done = InProcess(file.folder, file.url)("doctor").said_no()
    assert "this could not be looked at" in done.out
    assert "Everything is in order" not in done.out


def test_a_missing_trigger(file: Ground) -> None:
    file("DROP TRIGGER holdfast_retire")
    [finding] = grave(file.examined())
    assert (finding.check, finding.severity) == ("guards", PROBLEM)
    assert "holdfast_retire" in finding.found
    assert "`holdfast db upgrade`" in finding.advice
    InProcess(file.folder, file.url)("db", "upgrade").succeeded()
    assert grave(file.examined()) == []


def test_a_time_in_the_future(file: Ground) -> None:
    store = open_store(file.url)
    store.enqueue(NewJob(task="work"))
    store.close()
    assert grave(file.examined()) == []
    file("INSERT INTO holdfast_duties (name, ticked_at) VALUES ('reaper', '2099-01-01T00:00:00.000000Z')")
    [finding] = grave(file.examined())
    assert (finding.check, finding.severity) == ("clock", WARNING)
    assert "in the future" in finding.found


def test_an_older_schema_is_upgraded_by_whoever_comes_next(file: Ground) -> None:
    file("DELETE FROM holdfast_meta WHERE key = 'installed'")
    findings = file.examined()
    assert grave(findings) == []
    [finding] = [finding for finding in findings if finding.check == "schema"]
    assert finding.severity is INFO
    file("UPDATE holdfast_schema_version SET version_num = '9999'")
    [finding] = grave(file.examined())
    assert (finding.check, finding.severity) == ("schema", PROBLEM)


@pytest.mark.parametrize(
    ("path", "kind"),
    [
        ("/srv/jobs.db", "ext4"),
        ("/srv/shared/jobs.db", "nfs4"),
        ("/srv/sharedelsewhere/jobs.db", "ext4"),
        ("/mnt/a disk/jobs.db", "fuse.sshfs"),
        ("/tmp/jobs.db", "tmpfs"),
    ],
)
def test_the_file_system_is_that_of_the_nearest_mount(path: str, kind: str) -> None:
    mounts = (
        "/dev/vda / ext4 rw 0 0\nhost:/export /srv/shared nfs4 rw 0 0\n"
        "user@host: /mnt/a\\040disk fuse.sshfs rw 0 0\n/dev/vdb /tmp ext4 rw 0 0\ntmpfs /tmp tmpfs rw 0 0\n"
    )
    assert file_system(Path(path), mounts) == kind


def test_a_network_file_system(file: Ground, monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    """Of all faults the one that cannot be had for real everywhere: only the list of mounts is another."""
    mounts = tmp_path / "mounts"
    mounts.write_text("host:/export / nfs4 rw 0 0\n")
    monkeypatch.setattr("holdfast.doctor.durability._MOUNTS", mounts)
    [finding] = grave(file.examined())
    assert (finding.check, finding.severity) == ("file", PROBLEM)
    assert "nfs4" in finding.found
    assert "Postgres" in finding.advice


def test_a_place_for_files_that_cannot_be_written(file: Ground) -> None:
    (file.folder / "a_file").touch()
    [finding] = grave(file.examined(HOLDFAST_ARTIFACTS=str(file.folder / "a_file" / "below")))
    assert (finding.check, finding.severity) == ("artifacts", PROBLEM)
    assert "HOLDFAST_ARTIFACTS" in finding.advice


@pytest.mark.parametrize("place", ["memory://files", "simplecache::memory://files"])
def test_a_place_for_files_that_is_nobody_elses(file: Ground, place: str) -> None:
    [finding] = grave(file.examined(HOLDFAST_ARTIFACTS=place))
    assert (finding.check, finding.severity) == ("artifacts", PROBLEM)
    assert "in the memory of each process" in finding.found
    assert "HOLDFAST_ARTIFACTS" in finding.advice


def test_a_variable_that_no_setting_knows(file: Ground) -> None:
    [finding] = grave(file.examined(HOLDFAST_GRACE_SECOND="30", HOLDFAST_NOTIFY="true", HOLDFAST_JOB_ID="1"))
    assert (finding.check, finding.severity) == ("environment", WARNING)
    assert "HOLDFAST_GRACE_SECOND is set" in finding.found
    assert "Did you mean HOLDFAST_GRACE_SECONDS?" in finding.advice


def test_every_wrong_setting_is_a_finding(file: Ground) -> None:
    findings = file.examined(LEASE_SECONDS="-1", POLL_INTERVAL="banana")
    found = grave(findings)
    assert [(finding.check, finding.severity) for finding in found] == [("settings", PROBLEM)] * 2
    assert "LEASE_SECONDS" in found[0].found
    assert "POLL_INTERVAL" in found[1].found
    assert "machine" in {finding.check for finding in findings}


def test_few_open_files(file: Ground) -> None:
    with lowered_files(256):
        [finding] = grave(file.examined())
    assert (finding.check, finding.severity) == ("machine", WARNING)
    assert "256 files" in finding.found
    assert "ulimit" in finding.advice


@contextmanager
def lowered_files(soft: int) -> Iterator[None]:
    before = resource.getrlimit(resource.RLIMIT_NOFILE)
    resource.setrlimit(resource.RLIMIT_NOFILE, (soft, before[1]))
    try:
        yield
    finally:
        resource.setrlimit(resource.RLIMIT_NOFILE, before)


def test_no_time_zones(file: Ground, monkeypatch: pytest.MonkeyPatch) -> None:
    before = zoneinfo.TZPATH
    zoneinfo.reset_tzpath(to=[])
    zoneinfo.ZoneInfo.clear_cache()
    try:
        with monkeypatch.context() as without:
            without.setitem(sys.modules, "tzdata", None)
            without.setitem(sys.modules, "tzdata.zoneinfo", None)
            without.setitem(sys.modules, "tzdata.zoneinfo.Europe", None)
            [finding] = grave(file.examined())
    finally:
        zoneinfo.reset_tzpath(to=before)
    assert (finding.check, finding.severity) == ("time zones", WARNING)
    assert "tzdata" in finding.advice
