"""One SQLite file and many processes: everybody gets a turn, nobody hears "database is locked", one checkpoints."""

import fcntl
import os
import sqlite3
from collections.abc import Iterator
from contextlib import closing, contextmanager
from dataclasses import dataclass, field
from pathlib import Path

import pytest

from holdfast.domain.errors import StoreUnavailable
from holdfast.domain.job import NewJob
from holdfast.stores import checkpoint
from holdfast.stores.checkpoint import Checkpointer
from holdfast.stores.sql_store import SqlStore
from holdfast.stores.sqlite import SqliteDatabase, open_sqlite
from tests.chaos.crew import Crew
from tests.chaos.databases import assert_verified, opened, query, sqlite_path
from tests.chaos.verbs import Meddler

OPERATIONS = 80
THRESHOLD = 128 * 1024
OFTEN = 4  # commits of one process between two looks at the WAL's size


@dataclass
class Seen:
    """What one process saw of its own checkpoints."""

    begun: int = 0
    without_the_lock: int = 0
    side_by_side: int = 0
    emptied: list[int] = field(default_factory=list)  # sizes of the WAL before
    went_on: int = 0  # with the old WAL after a checkpoint that emptied it


class WatchedCheckpointer(Checkpointer):
    """Looks at the lock file, and at a mark of its own, at the very moment that SQLite begins and has ended.

    SQLite reports each statement as it begins: the one after the checkpoint puts the busy timeout back, still under
    the lock.
    """

    def __init__(self, path: Path) -> None:
        super().__init__(path, THRESHOLD)
        self.seen = Seen()
        self._path = path
        self._mark = path.with_name("checkpointing")
        self._marked = False

    def checkpoint(self, connection: sqlite3.Connection) -> bool:
        before, log = wal_size(self._path), wal_header(self._path)
        connection.set_trace_callback(self._watch)
        try:
            emptied = super().checkpoint(connection)
        finally:
            connection.set_trace_callback(None)
        if emptied:
            self.seen.emptied.append(before)
            self.seen.went_on += wal_header(self._path) == log
        return emptied

    def _watch(self, statement: str) -> None:
        if "wal_checkpoint" in statement:
            self.seen.begun += 1
            self.seen.without_the_lock += not is_locked(self._path)
            self._leave_mark()
        elif self._marked:
            self._mark.unlink()
            self._marked = False

    def _leave_mark(self) -> None:
        try:
            os.close(os.open(self._mark, os.O_CREAT | os.O_EXCL))
            self._marked = True
        except FileExistsError:
            self.seen.side_by_side += 1


def wal_size(path: Path) -> int:
    return path.with_name(f"{path.name}-wal").stat().st_size


def wal_header(path: Path) -> bytes:
    """Another one once the WAL was emptied: of the next write, or none before that."""
    with path.with_name(f"{path.name}-wal").open("rb") as file:
        return file.read(32)


def lock_file(path: Path) -> Path:
    return path.with_name(f"{path.name}-checkpoint")


def is_locked(path: Path) -> bool:
    with lock_file(path).open("w") as handle:
        try:
            fcntl.flock(handle, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except BlockingIOError:
            return True
        return False


@contextmanager
def watched(store: SqlStore, look_every: int, monkeypatch: pytest.MonkeyPatch) -> Iterator[Seen]:
    database = store.database
    assert isinstance(database, SqliteDatabase)
    assert database.path is not None
    watcher = WatchedCheckpointer(database.path)
    monkeypatch.setattr(database, "_checkpointer", watcher)
    monkeypatch.setattr(checkpoint, "LOOK_EVERY_COMMITS", look_every)
    yield watcher.seen


def meddle(number: int, url: str, look_every: int) -> Seen:
    with pytest.MonkeyPatch.context() as patch, opened(url) as store, watched(store, look_every, patch) as seen:
        Meddler(store, number).meddle(OPERATIONS)
        return seen


def open_new_file(number: int, url: str) -> str:
    with opened(url) as store:
        return store.enqueue(NewJob(task="first", payload={"process": number})).id


def test_mixed_verbs_from_eight_processes_while_checkpoints_run(
    sqlite_store: SqlStore, sqlite_url: str, crew: Crew
) -> None:
    seen = crew.run(meddle, sqlite_url, OFTEN)
    assert_verified(sqlite_url)
    assert sum(each.begun for each in seen) > 0
    assert sum(each.without_the_lock for each in seen) == 0
    assert sum(each.side_by_side for each in seen) == 0
    emptied = [size for each in seen for size in each.emptied]
    assert emptied
    assert sum(each.went_on for each in seen) == 0
    # `sqlite_store` keeps the file open, so that it was not the last process to leave that emptied the WAL.
    assert wal_size(sqlite_path(sqlite_url)) < max(emptied) + THRESHOLD
    assert sqlite_store.counts()


def test_nobody_checkpoints_while_somebody_else_has_the_lock_file(
    sqlite_store: SqlStore, sqlite_url: str, crew: Crew
) -> None:
    path = sqlite_path(sqlite_url)
    before = wal_size(path)
    with lock_file(path).open("w") as handle:
        fcntl.flock(handle, fcntl.LOCK_EX)
        seen = crew.run(meddle, sqlite_url, OFTEN)
        assert [each.begun for each in seen] == [0] * crew.size
        assert wal_size(path) > max(before, THRESHOLD)
    grown = wal_size(path)
    assert sum(each.begun for each in crew.run(meddle, sqlite_url, OFTEN)) > 0
    assert wal_size(path) < grown
    assert_verified(sqlite_url)
    assert sqlite_store.counts()


def test_open_reader_keeps_the_wal_long_and_nobody_waiting(sqlite_store: SqlStore, sqlite_url: str, crew: Crew) -> None:
    """A report that reads for a long time: checkpoints do not complete, and all verbs go on."""
    sqlite_store.enqueue(NewJob(task="first"))
    path = sqlite_path(sqlite_url)
    reader = sqlite3.connect(path, isolation_level=None)
    reader.execute("BEGIN")
    assert reader.execute("SELECT count(*) FROM holdfast_jobs").fetchone() == (1,)
    seen = crew.run(meddle, sqlite_url, checkpoint.LOOK_EVERY_COMMITS)
    assert sum(each.begun for each in seen) > 0
    assert [each.emptied for each in seen] == [[]] * crew.size
    assert reader.execute("SELECT count(*) FROM holdfast_jobs").fetchone() == (1,)
    reader.close()
    assert_verified(sqlite_url)


def test_eight_processes_may_be_the_first_to_open_a_file(tmp_path: Path, crew: Crew) -> None:
    for attempt in range(5):
        url = f"sqlite:///{tmp_path / f'new-{attempt}.db'}"
        created = crew.run(open_new_file, url)
        assert sorted(created) == [job_id for (job_id,) in query(url, "SELECT id FROM holdfast_jobs ORDER BY id")]
        assert_verified(url)


def test_a_new_file_that_somebody_has_locked_is_waited_for(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """SQLite itself does not wait here, whatever its busy timeout: to switch to WAL it first reads the file."""
    other = sqlite3.connect(tmp_path / "new.db", isolation_level=None)
    other.execute("BEGIN IMMEDIATE")
    other.execute("CREATE TABLE not_ours (x)")
    url = f"sqlite:///{tmp_path / 'new.db'}"
    impatient = open_sqlite(url, timeout_seconds=0.01)
    with closing(impatient), pytest.raises(StoreUnavailable, match=r"stayed locked for 0\.01 s"):
        impatient.engine.connect()
    waits: list[float] = []

    def wait(seconds: float) -> None:
        waits.append(seconds)
        if len(waits) == 3:
            other.execute("ROLLBACK")
            other.close()

    monkeypatch.setattr("holdfast.stores.sqlite.time.sleep", wait)
    assert open_new_file(1, url)
    assert len(waits) >= 3


def test_a_file_that_cannot_be_opened_is_away(tmp_path: Path) -> None:
    store = SqlStore(open_sqlite(f"sqlite:///{tmp_path / 'removed' / 'jobs.db'}"))
    for ask in (store.counts, lambda: store.claim("ann")):
        with pytest.raises(StoreUnavailable, match="the SQLite file cannot be used: unable to open database file"):
            ask()
