"""A command loads what it uses and nothing else: of the command line its own file, of the libraries the fewest."""

import json
import subprocess
import sys
from collections.abc import Iterator, Mapping
from pathlib import Path

import pytest

from holdfast.cli.app import COMMANDS, Commands, Group
from tests.acceptance.command_line import CommandLine, InProcess

NEVER = {
    "alembic",
    "fastapi",
    "httpx",
    "mako",
    "prometheus_client",
    "pydantic",
    "pydantic_core",
    "structlog",
    "uvicorn",
}
STORE = {"psycopg", "psycopg_binary", "sqlalchemy"}
SHARED = {"app", "edge", "given", "output", "session"}

PROGRAM = """
import json, sys
from holdfast.cli import main
code = main(sys.argv[1:])
print(json.dumps([code, sorted(sys.modules)]))
"""


def loaded(bare: CommandLine, *words: str) -> set[str]:
    done = subprocess.run(
        [sys.executable, "-c", PROGRAM, *words],
        cwd=bare.folder,
        env=bare.environment(),
        capture_output=True,
        text=True,
        check=True,
    )
    code, modules = json.loads(done.stdout.splitlines()[-1])
    assert code in (0, 1), done.stderr
    return set(modules)


def packages(modules: set[str]) -> set[str]:
    return {name.partition(".")[0] for name in modules}


def commands_of(modules: set[str]) -> set[str]:
    return {name.split(".")[2] for name in modules if name.startswith("holdfast.cli.")}


def paths(commands: Commands = COMMANDS, above: tuple[str, ...] = ()) -> Iterator[tuple[str, ...]]:
    for name, branch in commands.items():
        yield (*above, name)
        if isinstance(branch, Group):
            yield from paths(branch.commands, (*above, name))


def test_version_loads_no_library_but_the_command_line_s_own(bare: CommandLine) -> None:
    modules = loaded(bare, "version")

    assert packages(modules) & (NEVER | STORE | {"asyncio", "rich"}) == set()
    assert commands_of(modules) == SHARED | {"version"}
    assert not {name for name in modules if name.startswith("holdfast.domain.")} - {"holdfast.domain.errors"}


@pytest.mark.parametrize(
    ("words", "files"),
    [
        (("jobs", "list", "--limit", "5"), {"jobs_list", "ages"}),
        (("enqueue", "add", "{}"), {"enqueue"}),
        (("queues",), {"queues", "ages", "limits"}),
    ],
)
def test_a_command_on_sqlite_loads_its_own_file_and_no_other_driver(
    bare: CommandLine, words: tuple[str, ...], files: set[str]
) -> None:
    bare("db", "upgrade").succeeded()
    modules = loaded(bare, *words)

    assert packages(modules) & (NEVER | {"psycopg", "psycopg_binary"}) == set()
    assert not {name for name in modules if name.startswith("sqlalchemy.orm")}
    assert commands_of(modules) - SHARED == files


def test_importing_holdfast_loads_nothing_of_it(tmp_path: Path) -> None:
    program = "import sys, holdfast\nprint(*sys.modules)"
    done = subprocess.run([sys.executable, "-c", program], capture_output=True, text=True, check=True, cwd=tmp_path)

    assert {name for name in done.stdout.split() if name.startswith("holdfast")} == {"holdfast"}


@pytest.mark.parametrize("path", list(paths()), ids=" ".join)
def test_every_command_of_the_tree_is_there_and_says_what_it_does(inside: InProcess, path: tuple[str, ...]) -> None:
    branch = place_of(path)
    said = inside(*path, "--help").succeeded().out

    assert f"holdfast {' '.join(path)}" in said
    if isinstance(branch, Group):
        assert branch.text in " ".join(said.split())
        assert all(name in said for name in branch.commands)


def place_of(path: tuple[str, ...]) -> "str | Group":
    commands: Mapping[str, str | Group] = COMMANDS
    *above, last = path
    for name in above:
        group = commands[name]
        assert isinstance(group, Group)
        commands = group.commands
    return commands[last]
