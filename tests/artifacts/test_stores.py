"""Where files are kept: a folder, a bucket, and what fsspec calls a file system. They must do the same."""

from __future__ import annotations

import errno
import os
import threading
import traceback
import uuid
from collections.abc import Callable
from pathlib import Path
from typing import Any

import fsspec
import pytest
from fsspec.implementations.memory import MemoryFileSystem

from holdfast.artifacts.opening import artifacts_root, check_for_worker, open_artifacts
from holdfast.domain.artifacts import TEMPORARY
from holdfast.domain.errors import ArtifactMissing, ArtifactUnavailable, ConfigurationError, InvalidInput
from holdfast.ports import ArtifactStore
from tests.artifacts.names import BAD_NAMES

JOB = "01890a5d-ac96-774b-bcce-b302099a8057"
OTHER = "01890a5d-ac96-774b-bcce-b302099a8058"


MOVED: list[str] = []


def _noted_move(self: Any, path1: str, path2: str, **named: Any) -> None:
    MOVED.append(path1)
    MemoryFileSystem.mv(self, path1, path2, **named)


# No object store, as far as its protocol tells: there a file appears under its name while it is being written.
SlowFileSystem: Any = type("SlowFileSystem", (MemoryFileSystem,), {"protocol": "slowfs", "mv": _noted_move})
fsspec.register_implementation("slowfs", SlowFileSystem, clobber=True)


@pytest.fixture(params=["folder", "memory", "slowfs"])
def store(request: pytest.FixtureRequest, tmp_path: Path) -> ArtifactStore:
    base = str(tmp_path / "files") if request.param == "folder" else f"{request.param}://{uuid.uuid4().hex}/files"
    return open_artifacts(artifacts_root(base, "store-1"))


def stored(store: ArtifactStore, job_id: str = JOB) -> list[str]:
    return sorted(file.path for file in store.files(job_id))


def test_what_is_written_can_be_read_listed_and_deleted(store: ArtifactStore) -> None:
    assert (list(store.job_folders()), stored(store)) == ([], [])
    store.write(f"{JOB}/1/page.html", b"one")
    store.write(f"{JOB}/2/page.html", b"two")
    store.write(f"{JOB}/2/deep/er/x.bin", b"")
    store.write(f"{OTHER}/1/a", b"\x00\xff")
    store.write(f"{JOB}/2/page.html", b"two again")

    assert store.read(f"{JOB}/1/page.html") == b"one"
    assert store.read(f"{JOB}/2/page.html") == b"two again"
    assert store.read(f"{JOB}/2/deep/er/x.bin") == b""
    with store.open(f"{OTHER}/1/a") as file:
        assert file.read() == b"\x00\xff"
    assert sorted(store.job_folders()) == [JOB, OTHER]
    assert stored(store) == [f"{JOB}/1/page.html", f"{JOB}/2/deep/er/x.bin", f"{JOB}/2/page.html"]

    store.delete(f"{JOB}/1/page.html")
    store.delete(f"{JOB}/1/page.html")
    store.delete(f"{JOB}/2/deep/er/x.bin")
    store.delete(f"{JOB}/2/page.html")
    store.remove_empty(JOB)
    assert stored(store) == []
    with pytest.raises(ArtifactMissing, match="no such file"):
        store.read(f"{JOB}/1/page.html")
    with pytest.raises(ArtifactMissing, match="no such file"):
        store.open(f"{JOB}/1/page.html")
    assert store.read(f"{OTHER}/1/a") == b"\x00\xff"


def test_times_of_files_are_by_the_clock_that_is_asked(store: ArtifactStore) -> None:
    store.write(f"{JOB}/1/before", b"")
    now = store.now()
    [file] = store.files(JOB)
    assert now - 3600 < file.modified <= now
    assert list(store.job_folders()) == [JOB], "the question leaves nothing behind"


def test_a_check_leaves_nothing_behind(store: ArtifactStore) -> None:
    store.check()
    assert list(store.job_folders()) == []
    store.write(f"{JOB}/1/a", b"a")
    store.check()
    assert stored(store) == [f"{JOB}/1/a"]


def test_no_name_escapes(store: ArtifactStore) -> None:
    for name in BAD_NAMES:
        for reference in (f"{JOB}/1/{name}", name, f"{JOB}/{name}"):
            with pytest.raises(InvalidInput):
                store.write(reference, b"x")
            for read in (store.read, store.open):
                with pytest.raises(InvalidInput):
                    read(reference)
    assert list(store.job_folders()) == []


def test_two_databases_in_one_place_do_not_see_each_other(tmp_path: Path) -> None:
    ours, theirs = (open_artifacts(artifacts_root(str(tmp_path), store_id)) for store_id in ("ours", "theirs"))
    ours.write(f"{JOB}/1/a", b"ours")
    theirs.write(f"{JOB}/1/a", b"theirs")
    assert (ours.read(f"{JOB}/1/a"), theirs.read(f"{JOB}/1/a")) == (b"ours", b"theirs")
    theirs.delete(f"{JOB}/1/a")
    assert ours.read(f"{JOB}/1/a") == b"ours"


# a folder


def test_reading_and_asking_make_no_folder(tmp_path: Path) -> None:
    store = open_artifacts(str(tmp_path / "files" / "id"))
    assert (list(store.job_folders()), stored(store)) == ([], [])
    for read in (store.read, store.open):
        with pytest.raises(ArtifactMissing):
            read(f"{JOB}/1/a")
    store.remove_empty(JOB)
    store.delete(f"{JOB}/1/a")
    store.check()
    assert list(tmp_path.iterdir()) == []


@pytest.mark.parametrize("linked", ["job", "attempt", "folder", "file"])
def test_a_symbolic_link_is_not_followed(tmp_path: Path, linked: str) -> None:
    outside = tmp_path / "outside"
    outside.mkdir()
    (outside / "secret").write_text("secret")
    inside = {"job": [JOB], "attempt": [JOB, "1"], "folder": [JOB, "1", "sub"], "file": [JOB, "1", "secret"]}[linked]
    link = tmp_path / "files" / Path(*inside)
    link.parent.mkdir(parents=True)
    link.symlink_to(outside / "secret" if linked == "file" else outside)
    references = {
        "job": f"{JOB}/1/secret",
        "attempt": f"{JOB}/1/secret",
        "folder": f"{JOB}/1/sub/secret",
        "file": f"{JOB}/1/secret",
    }
    store = open_artifacts(str(tmp_path / "files"))
    for attempt in (store.read, store.open, store.delete):
        with pytest.raises(ArtifactUnavailable, match="symbolic link"):
            attempt(references[linked])
    with pytest.raises(ArtifactUnavailable, match="symbolic link"):
        store.write(references[linked], b"overwritten")
    assert list(store.files(JOB)) == []
    assert [(path.name, path.read_text()) for path in outside.iterdir()] == [("secret", "secret")]


def test_the_folder_itself_may_be_a_link(tmp_path: Path) -> None:
    (tmp_path / "disk").mkdir()
    (tmp_path / "files").symlink_to(tmp_path / "disk")
    open_artifacts(str(tmp_path / "files")).write(f"{JOB}/1/a", b"a")
    assert (tmp_path / "disk" / JOB / "1" / "a").read_bytes() == b"a"


def test_a_write_that_fails_leaves_what_was_there(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    store = open_artifacts(str(tmp_path))
    store.write(f"{JOB}/1/a", b"old")

    def no_space(_descriptor: int) -> None:
        raise OSError(28, os.strerror(28))

    monkeypatch.setattr(os, "fsync", no_space)
    with pytest.raises(ArtifactUnavailable, match=r"cannot be saved in .*No space left"):
        store.write(f"{JOB}/1/a", b"new")
    assert store.read(f"{JOB}/1/a") == b"old"
    assert stored(store) == [f"{JOB}/1/a"], "no temporary file is left"


def test_a_place_that_is_no_folder_is_an_error_in_words(tmp_path: Path) -> None:
    (tmp_path / "files").write_text("a file")
    store = open_artifacts(str(tmp_path / "files" / "id"))
    attempts: list[Callable[[], object]] = [lambda: store.write(f"{JOB}/1/a", b""), store.check]
    for attempt in attempts:
        with pytest.raises(ArtifactUnavailable, match=r"Not a directory|File exists"):
            attempt()


def test_a_place_that_is_a_link_to_nowhere_is_an_error_at_once(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    (tmp_path / "files").symlink_to(tmp_path / "unmounted")
    monkeypatch.setattr("holdfast.artifacts.local.time.sleep", lambda _seconds: pytest.fail("it waits for a folder"))
    with pytest.raises(ArtifactUnavailable, match="File exists"):
        open_artifacts(str(tmp_path / "files")).write(f"{JOB}/1/a", b"x")


def test_who_removes_empty_folders_takes_none_away_from_who_writes(tmp_path: Path) -> None:
    store = open_artifacts(str(tmp_path))
    over = threading.Event()

    def remove() -> None:
        while not over.wait(0.001):
            store.remove_empty(JOB)

    remover = threading.Thread(target=remove)
    remover.start()
    try:
        for number in range(200):
            store.write(f"{JOB}/{number}/a", b"x")
            store.delete(f"{JOB}/{number}/a")
    finally:
        over.set()
        remover.join()


@pytest.mark.parametrize("found", [False, True], ids=["made and gone", "there and gone"])
def test_a_folder_that_is_gone_fifty_times_in_a_row_is_made_again(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, found: bool
) -> None:
    store, mkdir, taken = open_artifacts(str(tmp_path)), Path.mkdir, 0

    def and_the_collector_comes(self: Path, *args: Any, **options: Any) -> None:
        nonlocal taken
        mkdir(self, *args, **options)
        if self.name == "1" and taken < 50:
            taken += 1
            self.rmdir()
            if found:
                raise FileExistsError(errno.EEXIST, os.strerror(errno.EEXIST), str(self))

    monkeypatch.setattr(Path, "mkdir", and_the_collector_comes)
    store.write(f"{JOB}/1/a", b"x")
    assert (store.read(f"{JOB}/1/a"), taken) == (b"x", 50)


# a bucket


def test_an_object_is_put_under_its_own_name_and_a_file_is_moved_there() -> None:
    for protocol, moves in (("memory", 0), ("slowfs", 1)):
        base = uuid.uuid4().hex
        store = open_artifacts(f"{protocol}://{base}")
        store.write(f"{JOB}/1/a", b"x")
        assert stored(store) == [f"{JOB}/1/a"]
        assert len([path for path in MOVED if base in path and TEMPORARY in path]) == moves


def test_a_listing_is_never_an_old_one() -> None:
    store = open_artifacts(f"memory://{uuid.uuid4().hex}")
    store.write(f"{JOB}/1/a", b"x")
    assert stored(store) == [f"{JOB}/1/a"]
    store.write(f"{JOB}/1/b", b"x")
    assert stored(store) == [f"{JOB}/1/a", f"{JOB}/1/b"]


def test_a_protocol_whose_package_is_missing_says_what_to_install(monkeypatch: pytest.MonkeyPatch) -> None:
    def missing(_url: str) -> None:
        raise ImportError("Install s3fs to access S3")

    monkeypatch.setattr("fsspec.get_filesystem_class", missing)
    with pytest.raises(ConfigurationError, match="pip install s3fs"):
        open_artifacts("s3://bucket/x")


def test_an_unknown_protocol_and_a_pattern_are_wrong_configuration() -> None:
    with pytest.raises(ConfigurationError, match="nonsense://"):
        open_artifacts("nonsense://x")
    with pytest.raises(ConfigurationError, match="must not contain any of"):
        open_artifacts("memory://a/[b]/c")


def test_a_password_in_the_url_is_not_shown() -> None:
    store = open_artifacts("memory://me:secret@host/x")
    assert store.place == "memory://me:***@host/x"
    with pytest.raises(ArtifactMissing) as caught:
        store.read(f"{JOB}/1/a")
    assert "memory://me:***@host/x" in str(caught.value)
    with pytest.raises(ConfigurationError) as refused:
        open_artifacts("nonsense://me:secret@host/x")
    assert "secret" not in str(refused.value)


def test_a_password_is_not_in_the_stack_that_is_stored_with_a_job_either(monkeypatch: pytest.MonkeyPatch) -> None:
    store = open_artifacts("memory://me:hunter2@host/x")

    def away(*_: object, **__: object) -> None:
        try:
            raise OSError("ftp://me:hunter2@host/x: no route")
        except OSError as error:
            raise RuntimeError("away") from error

    monkeypatch.setattr(MemoryFileSystem, "pipe_file", away)
    with pytest.raises(ArtifactUnavailable) as caught:
        store.write(f"{JOB}/1/a", b"")
    shown = "".join(traceback.format_exception(caught.value))
    assert "hunter2" not in shown
    assert "cannot be saved in memory://me:***@host/x: away" in shown


@pytest.mark.parametrize(
    ("location", "reason"),
    [
        ("memory://x", "a memory of its own"),
        ("simplecache::memory://me:hunter2@x", "a memory of its own"),
        ("nonsense://me:hunter2@x", "no protocol that fsspec knows"),
        ("simplecache::nonsense://x?key=hunter2", "no protocol that fsspec knows"),
    ],
)
def test_where_a_worker_can_never_keep_files_is_wrong_configuration(location: str, reason: str) -> None:
    with pytest.raises(ConfigurationError, match=reason) as caught:
        check_for_worker(location)
    assert "hunter2" not in str(caught.value)
    assert "s3://bucket/folder" in str(caught.value)


def test_a_place_that_is_only_away_is_no_reason_not_to_start(tmp_path: Path) -> None:
    for location in (str(tmp_path / "not/there"), "file:///not/there", "ftp://nobody.invalid/x"):
        check_for_worker(location)
