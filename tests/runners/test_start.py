"""A runner's beginning: ready with a manifest, or broken with a sentence that helps."""

import sys
from pathlib import Path

import pytest

from holdfast.domain.webhook import DELIVERY_TASK
from tests.runners.driver import Driver, Start


def broken(driver: Driver) -> tuple[str, str]:
    frame = driver.wait("broken")
    assert driver.wait_exit() == 2
    return frame["error"], frame["stack"] or ""


def test_ready_names_every_task(start: Start) -> None:
    driver = start(
        """
@app.task(version=3, max_attempts=7)
def one(): ...
@app.task
async def two(): ...
app.command("three", ["true"])
"""
    )
    tasks = {task["name"]: task for task in driver.wait("ready")["tasks"]}
    own = {"one": "sync", "two": "async", "three": "command"}
    assert {name: task["kind"] for name, task in tasks.items()} == {**own, DELIVERY_TASK: "sync"}
    assert tasks["one"]["version"] == "3"
    assert tasks["one"]["defaults"] == {"max_attempts": 7}


def test_the_attribute_may_be_named_and_dotted(start: Start) -> None:
    source = "class box: inner = app\n@app.task\ndef one(): ...\ndel app\n"
    driver = start(source, app="tasks:box.inner")
    assert [task["name"] for task in driver.wait("ready")["tasks"]] == ["one", DELIVERY_TASK]


def test_a_missing_module(start: Start, tmp_path: Path) -> None:
    error, _ = broken(start("", app="nowhere:app"))
    assert "there is no module 'nowhere'" in error
    assert str(tmp_path) in error


def test_a_module_that_misses_another(start: Start) -> None:
    error, stack = broken(start("import pandas_of_the_future"))
    assert "needs 'pandas_of_the_future', which is not installed" in error
    assert "tasks.py" in stack


def test_a_missing_attribute(start: Start) -> None:
    error, _ = broken(start("", app="tasks:application"))
    assert "has no 'application'" in error


def test_something_that_is_no_app(start: Start) -> None:
    error, _ = broken(start("thing = 5", app="tasks:thing"))
    assert "is a int, not a Holdfast App" in error


def test_a_syntax_error_names_file_and_line(start: Start) -> None:
    error, _ = broken(start("def (:"))
    assert "tasks.py, line 8 has a syntax error" in error or "tasks.py, line 7 has a syntax error" in error


@pytest.mark.parametrize("source", ["raise SystemExit(0)", "raise KeyboardInterrupt", "1 / 0"])
def test_whatever_a_module_raises_is_reported(start: Start, source: str) -> None:
    error, stack = broken(start(source))
    assert "importing 'tasks' failed" in error
    assert "tasks.py" in stack


def test_two_tasks_of_one_name(start: Start) -> None:
    error, _ = broken(start("@app.task\ndef one(): ...\n@app.task(name='one')\ndef other(): ..."))
    assert "one" in error


def test_a_trivial_app_needs_no_heavy_library(start: Start) -> None:
    driver = start(
        """
@app.task
def loaded() -> list[str]:
    return [name for name in ("sqlalchemy", "psycopg", "typer", "pydantic", "alembic") if name in sys.modules]
"""
    ).ready()
    from tests.runners.driver import job

    driver.run(job(1, "loaded"))
    assert driver.outcome("1.1")["result"] == []


def test_the_working_directory_is_importable_in_safe_path_mode(start: Start, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("PYTHONSAFEPATH", "1")
    assert sys.version_info >= (3, 11)
    start("").ready()
