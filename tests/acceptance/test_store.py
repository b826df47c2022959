"""Which store a command finds, and what it says when it finds none."""

import socket
from pathlib import Path

import pytest

from tests.acceptance.command_line import CommandLine, InProcess

NOBODY = "00000000-0000-0000-0000-000000000007"
READING = [
    ("jobs", "list"),
    ("jobs", "show", NOBODY),
    ("jobs", "logs", NOBODY),
    ("jobs", "cancel", NOBODY),
    ("jobs", "requeue", NOBODY),
    ("queues",),
    ("sources",),
    ("workers",),
    ("stuck",),
    ("verify",),
    ("db", "current"),
]


@pytest.fixture(scope="module")
def closed_port() -> int:
    """A port of the loopback at which nobody listens."""
    with socket.socket() as listener:
        listener.bind(("127.0.0.1", 0))
        port: int = listener.getsockname()[1]
        return port


@pytest.mark.parametrize("command", READING, ids=" ".join)
def test_a_command_that_reads_creates_no_file_and_says_that_there_is_none(
    inside: InProcess, command: tuple[str, ...]
) -> None:
    said = inside(*command, "--json").said_no()

    assert said.out == ""
    assert f"no database file {inside.folder / 'holdfast.db'}" in said.err
    assert list(inside.folder.iterdir()) == []


def test_with_no_configuration_enqueue_creates_a_file_that_everything_else_finds(bare: CommandLine) -> None:
    job_id = bare("enqueue", "add", '{"a": 1}').succeeded().out.strip()

    assert (bare.folder / "holdfast.db").is_file()
    assert bare("jobs", "show", job_id, "--json").succeeded().document["payload"] == {"a": 1}
    assert bare("db", "current", "--json").succeeded().document["ok"] is True


def test_the_default_file_is_beside_the_nearest_pyproject(tmp_path: Path) -> None:
    (tmp_path / "pyproject.toml").write_text("")
    inner = tmp_path / "src" / "deep"
    inner.mkdir(parents=True)

    InProcess(inner)("enqueue", "add").succeeded()

    assert (tmp_path / "holdfast.db").is_file()
    assert list(inner.iterdir()) == []


def test_the_flag_wins_over_the_environment_and_that_over_the_file(inside: InProcess) -> None:
    (inside.folder / "pyproject.toml").write_text('[tool.holdfast]\ndatabase_url = "sqlite:///file.db"\n')
    flagged = InProcess(inside.folder, "sqlite:///flag.db")

    flagged("enqueue", "add", DATABASE_URL="sqlite:///environment.db").succeeded()
    assert (inside.folder / "flag.db").is_file()
    inside("enqueue", "add", DATABASE_URL="sqlite:///environment.db").succeeded()
    assert (inside.folder / "environment.db").is_file()
    inside("enqueue", "add").succeeded()
    assert (inside.folder / "file.db").is_file()


def test_all_problems_of_a_configuration_are_reported_together(inside: InProcess) -> None:
    (inside.folder / "pyproject.toml").write_text("[tool.holdfast]\ncolour = 1\n")

    wrong = inside("jobs", "list", LEASE_SECONDS="0", CACHE_ENABLED="maybe", DATABASE_URL="mysql://u:hunter2@h/d")

    wrong.refused("LEASE_SECONDS", "CACHE_ENABLED", "DATABASE_URL", "mysql", "colour", "cache_ttl_seconds")
    assert "hunter2" not in wrong.err


@pytest.mark.parametrize("command", [*READING, ("enqueue", "add"), ("db", "upgrade"), ("demo",)], ids=" ".join)
def test_a_store_that_does_not_answer_is_exit_code_three(
    tmp_path: Path, closed_port: int, command: tuple[str, ...]
) -> None:
    address = f"postgresql://somebody:hunter2@127.0.0.1:{closed_port}/jobs?sslpassword=hunter2"

    done = InProcess(tmp_path, address)(*command, "--json")

    assert (done.code, done.out) == (3, "")
    assert "Connection refused" in done.err
    assert "hunter2" not in done.err
    assert "Traceback" not in done.err


def test_a_store_that_does_not_answer_looks_the_same_from_outside(tmp_path: Path, closed_port: int) -> None:
    done = CommandLine(tmp_path, f"postgresql://somebody:hunter2@127.0.0.1:{closed_port}/jobs")("jobs", "list")

    assert (done.code, done.out) == (3, "")
    assert "hunter2" not in done.err


def test_a_file_that_is_no_database_is_exit_code_three(inside: InProcess) -> None:
    (inside.folder / "holdfast.db").write_text("shopping list\n" * 100)

    for command in (("jobs", "list"), ("enqueue", "add"), ("verify",)):
        done = inside(*command)
        assert (done.code, done.out) == (3, "")
        assert "not a database" in done.err
    assert (inside.folder / "holdfast.db").read_text().startswith("shopping list")


def test_a_database_in_memory_is_refused_because_it_would_lose_the_job(tmp_path: Path) -> None:
    for url in ("sqlite://", "sqlite:///:memory:"):
        InProcess(tmp_path, url)("enqueue", "add").refused("memory", "file")


def test_a_postgres_without_tables_is_told_apart_from_an_empty_one(tmp_path: Path, postgres_database: str) -> None:
    holdfast = CommandLine(tmp_path, postgres_database)

    for command in (("enqueue", "add"), ("verify",)):
        holdfast(*command).refused("no Holdfast tables", "holdfast db upgrade")
    assert holdfast("db", "current", "--json").said_no().document["current"] is None
    holdfast("db", "upgrade").succeeded()
    holdfast("enqueue", "add").succeeded()
