"""Starting up: what is loaded, what help and version say, and what happens at the edges."""

import os
import pty
import subprocess
import sys

from holdfast import NewJob, __version__, open_store
from tests.acceptance.command_line import CommandLine, InProcess
from tests.servers.waiting import DEADLINE_SECONDS

HEAVY = ("alembic", "psycopg", "pydantic", "rich", "sqlalchemy", "typer")


def loaded_by(statement: str) -> set[str]:
    program = f"import sys\n{statement}\nprint(*{{name.partition('.')[0] for name in sys.modules}})"
    done = subprocess.run([sys.executable, "-c", program], capture_output=True, text=True, check=True)
    return set(done.stdout.split())


def test_importing_holdfast_is_light() -> None:
    loaded = loaded_by("import holdfast\nholdfast.NewJob(task='add')\nholdfast.State.PENDING\nholdfast.RetryPolicy()")

    assert loaded.isdisjoint(HEAVY)


def test_the_store_is_loaded_when_it_is_asked_for() -> None:
    assert "sqlalchemy" in loaded_by("import holdfast\nholdfast.open_store")
    assert loaded_by("import holdfast\nholdfast.__version__").isdisjoint(HEAVY)


def test_help_and_version_load_no_database_library() -> None:
    statement = "import holdfast.cli\nassert holdfast.cli.main(['version']) == 0"

    assert loaded_by(statement).isdisjoint({"alembic", "psycopg", "sqlalchemy"})


def test_version_is_said_in_both_forms(bare: CommandLine, inside: InProcess) -> None:
    assert bare("version").succeeded().out.startswith(f"holdfast {__version__} ")
    assert bare("version", "--json").succeeded().document["version"] == __version__
    assert inside("--json", "version", LEASE_SECONDS="wrong").succeeded().document["version"] == __version__


def test_help_is_there_for_everything(inside: InProcess) -> None:
    for command in ((), ("enqueue",), ("jobs", "list"), ("queues", "limit"), ("sources", "set"), ("demo",)):
        assert "--json" in inside(*command, "--help").succeeded().out
    assert inside().code == 2


def test_an_unknown_command_is_wrong_usage(inside: InProcess) -> None:
    inside("enqueu").refused("enqueu", "enqueue")
    inside("jobs", "delete").refused("delete")


def test_colours_and_the_name_of_the_store_are_for_terminals(bare: CommandLine) -> None:
    bare("enqueue", "add").succeeded()
    ours, theirs = pty.openpty()
    environment = bare.environment(TERM="xterm-256color")
    environment.pop("NO_COLOR", None)
    subprocess.run(
        bare.arguments("jobs", "list"), cwd=bare.folder, env=environment, stdout=theirs, stderr=theirs, check=True
    )
    os.close(theirs)
    on_terminal = os.read(ours, 65536).decode()
    os.close(ours)

    assert "store: sqlite:///" in on_terminal
    assert "\x1b[" in on_terminal
    piped = bare("jobs", "list").succeeded()
    assert "\x1b" not in piped.out
    assert piped.err == ""


def test_a_reader_that_leaves_early_causes_no_traceback(bare: CommandLine) -> None:
    store = open_store(f"sqlite:///{bare.folder / 'holdfast.db'}")
    store.enqueue_many([NewJob(task="add", payload={"text": "x" * 1000}) for _ in range(1000)])
    store.close()

    for form in ([], ["--json"]):
        process = subprocess.Popen(
            bare.arguments("jobs", "list", "--limit", "1000", *form),
            cwd=bare.folder,
            env=bare.environment(),
            stdout=subprocess.PIPE,
            stderr=subprocess.PIPE,
            text=True,
        )
        assert process.stdout is not None
        assert process.stderr is not None
        process.stdout.read(1)
        process.stdout.close()
        assert "rror" not in process.stderr.read()
        process.stderr.close()
        process.wait(DEADLINE_SECONDS)
