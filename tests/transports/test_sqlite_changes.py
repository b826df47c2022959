"""The change check on SQLite: it sees every commit, once, and is cheap."""

import sqlite3
from contextlib import closing
from pathlib import Path

from holdfast.domain.job import NewJob
from holdfast.transports.sqlite_changes import ChangeCheck
from holdfast.wiring.sql import open_store


def test_it_sees_every_commit_once(tmp_path: Path) -> None:
    path = tmp_path / "a b%20?.db"
    check = ChangeCheck(path)
    assert [check.changed(), check.changed()] == [False, False], "there is no file"
    assert not path.exists(), "to look makes none"
    store = open_store(f"sqlite:///{tmp_path}/plain.db")
    check = ChangeCheck(tmp_path / "plain.db")
    assert [check.changed(), check.changed()] == [True, False]
    for _ in range(3):
        store.enqueue(NewJob(task="work"))
        assert [check.changed(), check.changed()] == [True, False]
    assert store.claim("worker", tasks=["other"]) == []
    store.close()
    check.close()


def test_a_file_that_comes_later_is_seen(tmp_path: Path) -> None:
    check = ChangeCheck(tmp_path / "later.db")
    assert not check.changed()
    store = open_store(f"sqlite:///{tmp_path}/later.db")
    assert check.changed()
    store.close()
    check.close()


def test_a_file_that_took_the_place_of_another_is_seen(tmp_path: Path) -> None:
    for name in ("jobs.db", "restored.db"):
        with closing(sqlite3.connect(tmp_path / name)) as file:
            file.execute("CREATE TABLE jobs (id)")
    check = ChangeCheck(tmp_path / "jobs.db")
    assert [check.changed(), check.changed()] == [True, False]
    (tmp_path / "restored.db").replace(tmp_path / "jobs.db")
    assert [check.changed(), check.changed()] == [True, False]
    (tmp_path / "jobs.db").unlink()
    assert not check.changed(), "there is no file"
    check.close()


def test_a_file_that_is_no_database_changes_nothing(tmp_path: Path) -> None:
    (tmp_path / "letter.db").write_text("This is a letter. " * 100)
    check = ChangeCheck(tmp_path / "letter.db")
    assert not check.changed()
    check.close()


def test_a_look_during_a_write_does_not_wait(tmp_path: Path) -> None:
    store = open_store(f"sqlite:///{tmp_path}/busy.db")
    check = ChangeCheck(tmp_path / "busy.db")
    check.changed()
    writer = sqlite3.connect(tmp_path / "busy.db", isolation_level=None)
    writer.execute("BEGIN IMMEDIATE")
    writer.execute("INSERT INTO holdfast_jobs (task) VALUES ('open')")
    assert not any(check.changed() for _ in range(100))
    assert check._connection is not None
    assert check._connection.execute("PRAGMA busy_timeout").fetchone() == (0,), "it would not wait for a lock either"
    writer.execute("COMMIT")
    assert check.changed()
    writer.close()
    check.close()
    store.close()
