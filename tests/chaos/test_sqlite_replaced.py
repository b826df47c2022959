"""A SQLite file that is replaced under a running process: no write is acknowledged into a file that is gone."""

import os
import sqlite3
from collections.abc import Callable, Iterator
from contextlib import closing, suppress
from pathlib import Path

import pytest
from sqlalchemy import event

from holdfast import App
from holdfast.domain.errors import StoreUnavailable
from holdfast.domain.job import NewJob
from holdfast.domain.lifecycle import State
from holdfast.stores.cache_file import CacheFile
from holdfast.stores.checkpoint import THRESHOLD_BYTES
from holdfast.stores.sql_store import SqlStore
from holdfast.transports.sqlite_changes import ChangeCheck
from holdfast.wiring.sql import open_store
from tests.chaos.databases import assert_verified
from tests.worker.conftest import sqlite_site
from tests.worker.site import Site

__all__ = ["sqlite_site"]


@pytest.fixture
def path(tmp_path: Path) -> Path:
    return tmp_path / "holdfast.db"


@pytest.fixture
def store(path: Path) -> Iterator[SqlStore]:
    with closing(open_store(f"sqlite:///{path}")) as store:
        store.enqueue(NewJob(task="first"))
        yield store


def backup(path: Path, target: Path) -> Path:
    """As docs/sqlite.md says."""
    with closing(sqlite3.connect(path)) as source:
        source.execute(f"VACUUM INTO '{target}'")
    return target


def siblings(path: Path) -> list[Path]:
    return [path.with_name(f"{path.name}-wal"), path.with_name(f"{path.name}-shm")]


def remove_siblings(path: Path) -> None:
    for sibling in siblings(path):
        sibling.unlink()


def states(path: Path) -> list[str]:
    with closing(sqlite3.connect(f"{path.as_uri()}?mode=ro", uri=True, timeout=60.0)) as connection:
        return [row[0] for row in connection.execute("SELECT state FROM holdfast_jobs ORDER BY id")]


def tasks(path: Path) -> list[str]:
    with closing(sqlite3.connect(f"{path.as_uri()}?mode=ro", uri=True)) as connection:
        assert connection.execute("PRAGMA integrity_check").fetchall() == [("ok",)]
        return [row[0] for row in connection.execute("SELECT task FROM holdfast_jobs ORDER BY id")]


def move_beside_old_log(path: Path, copy: Path) -> None:
    copy.rename(path)


def remove(path: Path, _copy: Path) -> None:
    path.unlink()


def remove_log(path: Path, _copy: Path) -> None:
    siblings(path)[0].unlink()


def remove_log_and_index(path: Path, _copy: Path) -> None:
    remove_siblings(path)


WRITES: dict[str, Callable[[SqlStore], object]] = {
    "enqueue": lambda store: store.enqueue(NewJob(task="lost")),
    "claim": lambda store: store.claim("ann"),
}


@pytest.mark.parametrize("write", WRITES)
@pytest.mark.parametrize(
    ("replace", "advice"),
    [
        (move_beside_old_log, "move .*-wal and .*-shm away, put the file in place"),
        (remove, "Stop every process"),
        (remove_log, "the last one saves what the log held"),
        (remove_log_and_index, "the last one saves what the log held"),
    ],
)
def test_write_is_rejected_with_the_way_out(
    store: SqlStore, path: Path, tmp_path: Path, replace: Callable[[Path, Path], None], advice: str, write: str
) -> None:
    copy = backup(path, tmp_path / "backup.db")
    replace(path, copy)
    before = path.read_bytes() if path.exists() else None
    for _ in range(3):
        with pytest.raises(StoreUnavailable, match=advice):
            WRITES[write](store)
    assert (path.read_bytes() if path.exists() else None) == before, "nothing was written"


def test_log_that_was_removed_is_saved_by_the_last_process_to_stop(store: SqlStore, path: Path) -> None:
    siblings(path)[0].unlink()
    with pytest.raises(StoreUnavailable):
        store.enqueue(NewJob(task="lost"))
    assert [job.task for job in store.jobs().items] == ["first"], "reads go on"
    store.close()
    assert tasks(path) == ["first"]


def test_replaced_file_is_used_by_the_call_after_the_rejected_one(store: SqlStore, path: Path, tmp_path: Path) -> None:
    copy = backup(path, tmp_path / "backup.db")
    store.enqueue(NewJob(task="after the backup"))
    remove_siblings(path)
    copy.rename(path)
    with pytest.raises(StoreUnavailable, match="was replaced while it was open; nothing was written"):
        store.enqueue(NewJob(task="lost"))
    store.enqueue(NewJob(task="second"))
    assert sorted(job.task for job in store.jobs().items) == ["first", "second"]
    assert [claimed.task for claimed in store.claim("ann", 10)] == ["first", "second"]
    assert_verified(f"sqlite:///{path}")
    store.close()
    assert tasks(path) == ["first", "second"]


def test_reads_use_the_new_file_at_once(store: SqlStore, path: Path, tmp_path: Path) -> None:
    copy = backup(path, tmp_path / "backup.db")
    store.enqueue(NewJob(task="after the backup"))
    copy.rename(path)
    with pytest.raises(StoreUnavailable, match="belong to the previous file"):
        store.jobs()
    remove_siblings(path)
    assert [job.task for job in store.jobs().items] == ["first"]
    assert store.enqueue(NewJob(task="second")).created


def test_removed_file_is_not_made_anew_by_a_running_process(store: SqlStore, path: Path) -> None:
    remove_siblings(path)
    path.unlink()
    for act in (store.jobs, lambda: store.enqueue(NewJob(task="lost"))):
        with pytest.raises(StoreUnavailable, match=r"was removed while it was open.*Put a backup in its place"):
            act()
    assert not path.exists()
    with closing(open_store(f"sqlite:///{path}")) as other:
        other.enqueue(NewJob(task="another process"))
        assert [job.task for job in store.jobs().items] == ["another process"]


def test_removed_file_is_not_made_anew_by_one_more_connection(store: SqlStore, path: Path) -> None:
    with store.database.reading():  # the only connection of the pool: the next call opens another
        remove_siblings(path)
        path.unlink()
        for act in (store.jobs, lambda: store.enqueue(NewJob(task="lost"))):
            with suppress(StoreUnavailable):
                act()
    assert not path.exists()


def test_file_that_is_replaced_while_it_is_opened_stays_as_it_is(store: SqlStore, path: Path, tmp_path: Path) -> None:
    copy = backup(path, tmp_path / "backup.db")
    store.enqueue(NewJob(task="after the backup"))
    restored = copy.read_bytes()

    def replace_meanwhile(*_arguments: object) -> None:
        """After the check of the file, and before SQLite opens it."""
        if copy.exists():
            copy.rename(path)

    with store.database.reading():  # the only connection of the pool: the next call opens another
        event.listen(store.database.engine, "do_connect", replace_meanwhile)
        with pytest.raises(StoreUnavailable, match="was replaced while it was being opened"):
            store.jobs()
    assert path.read_bytes() == restored
    with pytest.raises(StoreUnavailable, match="belong to the previous file"):
        store.jobs()
    assert path.read_bytes() == restored


def test_worker_runs_the_jobs_of_a_restored_backup(sqlite_site: Site, tmp_path: Path) -> None:
    site = sqlite_site
    site.tasks("@app.task\ndef note(text: str) -> str:\n    return text")
    path = Path(str(site.store.database.engine.url.database))
    kept = site.enqueue("note", {"text": "kept"})
    copy = backup(path, tmp_path / "copy.db")
    site.worker()
    site.wait_for_state(kept, State.SUCCEEDED)
    remove_siblings(path)
    os.replace(copy, path)  # noqa: PTH105
    site.wait(lambda: states(path) == ["succeeded"], "the worker runs the job of the new file")
    assert site.event_names(kept) == ["enqueued", "claimed", "succeeded"]


def test_change_check_follows_the_new_file(store: SqlStore, path: Path, tmp_path: Path) -> None:
    copy = backup(path, tmp_path / "backup.db")
    check = ChangeCheck(path)
    assert [check.changed(), check.changed()] == [True, False]
    remove_siblings(path)
    copy.rename(path)
    assert check.changed()
    assert store.jobs().items
    store.enqueue(NewJob(task="second"))
    assert check.changed()
    check.close()


def test_cache_file_that_was_replaced_is_opened_anew(tmp_path: Path) -> None:
    path = tmp_path / "cache.db"
    cache, other = CacheFile(path), CacheFile(path)
    cache.keep_cached("shop", "a", 1, 3600.0)
    for file in (path, *siblings(path)):
        file.unlink()
    assert cache.cached("shop", "a") is None
    cache.keep_cached("shop", "b", 2, 3600.0)
    found = other.cached("shop", "b")
    assert found is not None
    assert found.value == 2
    cache.close()
    other.close()


@pytest.fixture
def linked(tmp_path: Path) -> Iterator[SqlStore]:
    """`jobs.db` is a link to `data/real.db`, and the write-ahead log lies in `data`."""
    (tmp_path / "data").mkdir()
    (tmp_path / "jobs.db").symlink_to(tmp_path / "data" / "real.db")
    with closing(open_store(f"sqlite:///{tmp_path / 'jobs.db'}")) as store:
        store.enqueue(NewJob(task="first"))
        yield store


@pytest.mark.parametrize("replace", [remove_log, move_beside_old_log])
def test_write_is_rejected_behind_a_link(
    linked: SqlStore, tmp_path: Path, replace: Callable[[Path, Path], None]
) -> None:
    real = tmp_path / "data" / "real.db"
    replace(real, backup(real, tmp_path / "backup.db"))
    before = real.read_bytes()
    for _ in range(3):
        with pytest.raises(StoreUnavailable, match="nothing was written"):
            linked.enqueue(NewJob(task="lost"))
    assert real.read_bytes() == before


def test_log_behind_a_link_is_emptied(linked: SqlStore, tmp_path: Path) -> None:
    log = tmp_path / "data" / "real.db-wal"
    while log.stat().st_size <= THRESHOLD_BYTES:
        linked.enqueue(NewJob(task="large", payload={"text": "x" * 200_000}))
    linked.database.checkpoint()
    assert log.stat().st_size < THRESHOLD_BYTES
    assert sorted(path.name for path in tmp_path.glob("*")) == ["data", "jobs.db"], "the lock lies beside the file"


def test_link_that_leads_to_another_file_is_followed(linked: SqlStore, tmp_path: Path) -> None:
    link = tmp_path / "jobs.db"
    backup(tmp_path / "data" / "real.db", tmp_path / "data" / "restored.db")
    linked.enqueue(NewJob(task="after the backup"))
    link.unlink()
    link.symlink_to(tmp_path / "data" / "restored.db")
    with pytest.raises(StoreUnavailable, match="the next call uses the new file"):
        linked.enqueue(NewJob(task="lost"))
    linked.enqueue(NewJob(task="second"))
    assert sorted(job.task for job in linked.jobs().items) == ["first", "second"]


def test_relative_path_means_the_same_file_after_a_change_of_directory(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    elsewhere = tmp_path / "elsewhere"
    elsewhere.mkdir()
    monkeypatch.chdir(tmp_path)
    with closing(open_store("sqlite:///jobs.db")) as store, closing(ChangeCheck("jobs.db")) as check:
        cache = CacheFile("cache.db")
        store.enqueue(NewJob(task="first"))
        monkeypatch.chdir(elsewhere)
        store.enqueue(NewJob(task="second"))
        with store.database.reading():  # the only connection of the pool: the next call opens another
            assert len(store.jobs().items) == 2
        cache.keep_cached("shop", "a", 1, 3600.0)
        cache.close()
        assert check.changed()
        assert not list(elsewhere.iterdir())


def test_inline_task_may_change_the_working_directory(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    with closing(App("sqlite:///jobs.db")) as app:

        @app.task
        def leave() -> None:
            os.chdir("/")

        jobs = [leave.enqueue() for _ in range(3)]
        app.work()
        assert [app.store.job(job.id).state for job in jobs] == [State.SUCCEEDED] * 3
