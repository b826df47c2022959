"""Who enqueues a job chooses its payload, and nothing else about the program that gets it: no word of it is run by a
shell, is another program, an option or a variable, and what the program leaves behind goes with it."""

from __future__ import annotations

import json
import os
import signal
import sys
from pathlib import Path
from typing import Any

import pytest

from holdfast.domain.errors import InvalidInput
from holdfast.domain.outcome import Succeeded
from holdfast.runners.command import CommandRun
from holdfast.runners.commands.directories import PREFIX, own_directory, remove_left_over
from holdfast.tasks.command import Command
from holdfast.tasks.context import JobInfo
from tests.runners.commanding import JOB_ID, Heard, is_alive, run
from tests.runners.driver import Driver, job
from tests.security.corpus import CANARY, HOSTILE
from tests.servers.waiting import wait_until
from tests.worker.site import Site

# Everything that a payload may hold: NUL and halves of characters are refused before.
TEXTS = {
    name: text for name, text in HOSTILE.items() if "\0" not in text and text.encode(errors="replace").decode() == text
}
SHOW = "import json, os, sys; print(json.dumps({'holdfast': 'result', 'result': [sys.argv[1:], dict(os.environ)]}))"


@pytest.fixture
def temporary(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """A temporary directory of this test's own."""
    path = tmp_path / "temporary"
    path.mkdir()
    monkeypatch.setenv("TMPDIR", str(path))
    monkeypatch.setattr("tempfile.tempdir", str(path))
    return path


def left(temporary: Path) -> list[str]:
    return [entry.name for entry in temporary.iterdir() if entry.name.startswith(PREFIX)]


def shown(*words: str, task: str = "t", queue: str = "q", payload: dict[str, Any] | None = None) -> Any:
    """The arguments and the environment that a program found."""
    command = Command(argv=[sys.executable, "-I", "-c", SHOW, *words])
    named = JobInfo(id=JOB_ID, task=task, queue=queue, payload=payload or {})
    outcome = CommandRun(command, named, Heard(), exclusive=False).run().outcome
    assert isinstance(outcome, Succeeded)
    return outcome.result


def test_a_payload_is_one_argument_to_the_byte_and_no_more() -> None:
    payload = {**TEXTS, **{text: text for text in TEXTS.values()}}
    [before, given, within, after], _environment = shown("--", "{payload}", "x={payload}=y", "end", payload=payload)
    assert (before, after) == ("--", "end")
    assert json.loads(given) == payload
    assert within == f"x={given}=y"
    assert given.startswith("{"), "whatever is in it, it is no option"


def test_nothing_of_a_payload_is_run(temporary: Path) -> None:
    for words in (["printf", "%s", "{payload}"], ["sh", "-c", 'printf "%s" "$1"', "sh", "{payload}"], ["cat"]):
        ended = run(*words, payload=TEXTS)
        assert json.loads("".join(ended.stdout)) == TEXTS
    assert CANARY not in [path.name for path in (*Path.cwd().iterdir(), *temporary.rglob("*"))]


@pytest.mark.parametrize("word", ["{payload}", "./run-{payload}", "/srv/{payload}/run"])
def test_a_payload_cannot_name_the_program(word: str) -> None:
    with pytest.raises(InvalidInput, match=r"argv\[0\]: must not contain {payload}"):
        Command(argv=[word])


def test_a_program_is_looked_for_where_the_worker_says_and_not_where_the_job_could_put_one(
    temporary: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    for place in (temporary, tmp_path):
        (place / "resize").write_text("#!/bin/sh\nexit 0\n")
        (place / "resize").chmod(0o755)
    monkeypatch.chdir(tmp_path)
    monkeypatch.setenv("PATH", f":.:{os.environ['PATH']}")  # its own directory is new, and has nothing in it
    assert run("resize", payload={"PATH": str(tmp_path)}).outcome.error.code == "command_not_found"


STEERING = (
    *("LD_PRELOAD", "LD_AUDIT", "BASH_ENV", "ENV", "IFS", "PYTHONPATH", "PYTHONSTARTUP", "NODE_OPTIONS", "PERL5OPT"),
    *("RUBYOPT", "GIT_SSH_COMMAND", "EDITOR", "PAGER", "LESSOPEN", "PS4", "PROMPT_COMMAND", "JAVA_TOOL_OPTIONS"),
)


def test_no_variable_that_steers_programs_comes_from_the_worker_or_the_job(monkeypatch: pytest.MonkeyPatch) -> None:
    for name in STEERING:
        if not name.startswith("LD_"):  # which would steer this very process' children
            monkeypatch.setenv(name, "/tmp/evil")
    payload = {**dict.fromkeys(STEERING, "evil"), "env": {"PATH": "evil"}, "PATH": "evil", "cwd": "/", "argv": ["sh"]}
    _arguments, environment = shown(payload=payload)
    assert not set(STEERING) & environment.keys()
    assert "evil" not in repr(environment)


def test_hostile_names_are_the_value_of_one_variable(queue_texts: list[str]) -> None:
    for text in queue_texts:
        _arguments, environment = shown(task=text, queue=text)
        assert (environment["HOLDFAST_TASK"], environment["HOLDFAST_QUEUE"]) == (text, text)
        assert environment["HOLDFAST_JOB_ID"] == JOB_ID


@pytest.fixture
def queue_texts() -> list[str]:
    """Some that names may be, with everything that could end a variable or begin another."""
    return ["a=b HOLDFAST_JOB_ID=other", "; PATH=/evil", "$(id)", "--help"]


COMMANDS = """
from holdfast import App
app = App()
app.command("sleeps", ["sh", "-c", "pwd > {file}.new; mv {file}.new {file}; exec sleep 300"])
app.command("kept", ["sh", "-c", "echo kept > here; pwd > {file}.new; mv {file}.new {file}; exec sleep 300"])
"""


def runner(folder: Path, file: Path) -> Driver:
    (folder / "tasks.py").write_text(COMMANDS.format(file=file))
    return Driver(folder, app="tasks:app").ready()


def started(driver: Driver, file: Path, task: str = "sleeps") -> str:
    driver.run(job(1, task))
    wait_until(file.exists, what="the command does not start")
    return file.read_text().strip()


def test_the_directory_of_a_command_goes_when_its_runner_was_killed(temporary: Path, tmp_path: Path) -> None:
    first, second = tmp_path / "first", tmp_path / "second"
    killed, living = runner(tmp_path, first), runner(tmp_path, second)
    try:
        abandoned, held = started(killed, first), started(living, second, "kept")
        assert sorted(left(temporary)) == sorted([Path(abandoned).name, Path(held).name])
        os.kill(killed.pid, signal.SIGKILL)
        killed.wait_exit()
        replacement = runner(tmp_path, tmp_path / "third")
        try:
            wait_until(lambda: not Path(abandoned).exists(), what="it stays")
        finally:
            replacement.close()
        assert (Path(held) / "here").read_text() == "kept\n", "one that is in use is left alone"
    finally:
        killed.close()
        living.close()


def test_the_directory_goes_when_a_worker_kills_its_runners_and_ends(
    temporary: Path, sqlite_site: Site, tmp_path: Path
) -> None:
    sqlite_site.tasks(f"""
        app.command("stubborn", ["sh", "-c", "trap '' TERM; echo $$ > {tmp_path}/pid; while :; do sleep 1; done"])
    """)
    worker = sqlite_site.worker(HOLDFAST_GRACE_SECONDS="0.2", TMPDIR=str(temporary))
    sqlite_site.enqueue("stubborn")
    [pid] = sqlite_site.wait_for_pids("pid")
    assert len(left(temporary)) == 1
    assert worker.stop() == 0
    wait_until(lambda: not is_alive(pid), what="the command has ended")
    assert left(temporary) == []


def test_only_what_is_ours_and_left_over_is_removed(temporary: Path, tmp_path: Path) -> None:
    elsewhere = tmp_path / "elsewhere"
    elsewhere.mkdir()
    (elsewhere / "file").touch()
    (temporary / f"{PREFIX}link0000").symlink_to(elsewhere)
    (temporary / f"{PREFIX}file0000").touch()
    (temporary / f"{PREFIX}other").mkdir()
    (temporary / f"{PREFIX}leftover").mkdir()
    (temporary / f"{PREFIX}leftover" / "link").symlink_to(elsewhere)
    with own_directory() as held:
        remove_left_over()
        assert Path(held).is_dir()
    kept = {f"{PREFIX}link0000", f"{PREFIX}file0000", f"{PREFIX}other"}
    assert set(left(temporary)) == kept
    assert (elsewhere / "file").exists(), "no link is followed"
