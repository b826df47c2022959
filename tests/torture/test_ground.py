"""Where a run's database file is, and whose clocks and disks faults may touch there."""

from __future__ import annotations

import tempfile
from pathlib import Path
from typing import Any

import pytest
from sqlalchemy import make_url

from holdfast.torture import ground as grounds
from holdfast.torture.ground import FILE_DISK_BYTES, Ground, sqlite_file
from holdfast.torture.setting import _skewed


class Disk:
    """A small disk, as far as a ground needs one; `reason` is why there is none."""

    reason: str | None = None

    def __init__(self, path: Path) -> None:
        self.path = path
        self.sizes: list[int] = []
        self.is_closed = False

    def available(self) -> str | None:
        return self.reason

    def __call__(self, size: int) -> Disk:
        self.sizes.append(size)
        return self

    def close(self) -> None:
        self.is_closed = True


@pytest.fixture
def disk(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Disk:
    disk = Disk(tmp_path / "disk")
    monkeypatch.setattr(grounds, "SmallDisk", disk)
    monkeypatch.setattr(tempfile, "tempdir", str(tmp_path))
    return disk


def folder_of(ground: Ground) -> Path:
    database = make_url(ground.url).database
    assert database is not None
    return Path(database).parent


def test_file_beside_a_named_one_is_on_its_disk_and_gone_at_the_end(tmp_path: Path, disk: Disk) -> None:
    (tmp_path / "users").mkdir()
    named = tmp_path / "users" / "jobs.db"
    ground = sqlite_file(named)
    folder = folder_of(ground)
    assert folder.parent == named.parent
    assert (ground.disk, ground.no_disk, disk.sizes) == (None, "the disk is not ours", [])
    ground.close()
    assert list(named.parent.iterdir()) == []


def test_file_where_no_disk_can_be_had_is_in_a_folder_of_its_own_and_gone_at_the_end(
    tmp_path: Path, disk: Disk
) -> None:
    disk.reason = "only root may mount a disk"
    ground = sqlite_file()
    folder = folder_of(ground)
    assert folder.parent == tmp_path
    assert folder.is_dir()
    assert (ground.disk, ground.no_disk, disk.sizes) == (None, disk.reason, [])
    ground.close()
    assert not folder.exists()


def test_file_on_a_disk_of_its_own_takes_the_disk_along(disk: Disk) -> None:
    ground = sqlite_file()
    held: Any = ground.disk
    assert held is disk
    assert (folder_of(ground), ground.no_disk, disk.sizes) == (disk.path, "", [FILE_DISK_BYTES])
    ground.close()
    assert disk.is_closed


def test_clocks_that_may_jump_are_those_of_processes_beside_a_server() -> None:
    file, server = Ground("sqlite:////tmp/torture.db"), Ground("postgresql://host/torture")
    assert _skewed(file, with_redis=True) == ["worker-http-1"], "the others share the clock of the store"
    assert _skewed(server, with_redis=False) == ["worker-database-1", "worker-http-1"]
    assert _skewed(server, with_redis=True) == ["worker-database-1", "worker-http-1", "worker-redis-1"]
