"""`holdfast demo`: what a newcomer sees, that it is true, and that nothing is left of it."""

from __future__ import annotations

import contextlib
import itertools
import json
import os
import pty
import re
import select
import shutil
import signal
import socket
import subprocess
import sys
import time
import zipfile
from collections.abc import Iterator, Mapping, Sequence
from pathlib import Path
from typing import Any

import httpx
import psutil
import pytest

from holdfast.cli.demo import samples, stage
from tests.acceptance.command_line import CommandLine, InProcess
from tests.serve import http
from tests.servers.waiting import DEADLINE_SECONDS, wait_until

ROOT = Path(__file__).parents[2]
LIMIT_SECONDS = 300.0  # of the whole demo, which takes half a minute on a quiet machine
UUID = r"[0-9a-f]{8}(?:-[0-9a-f]{4}){3}-[0-9a-f]{12}"
JOBS = 44
MEMBERS = 800  # of the model run
REFUSALS = [("complete", "lease_lost"), ("heartbeat", "lease_lost"), ("release", "lease_lost")]
SCENES = (
    r"1\. Two workers, two doors",
    r"Control plane and dashboard: http://127\.0\.0\.1:\d+",
    r"This link signs you in, once:\s+http://127\.0\.0\.1:\d+/welcome\?code=hf_\w+",
    r"Worker ada starts .* the database itself",
    r"Worker grace starts .* only HTTP, and a token",
    r"2\. An outside world with limits",
    r"3 coins come in",
    r"auctionhouse answers 429, Retry-After: 1",
    r"A-101 .* \$382\.78",
    r"3\. A worker is killed in the middle of a job",
    rf"(ada|grace), .*, runs a model: \d+ of {MEMBERS} members",
    r"kill -9 \d+: (ada|grace) is dead",
    r"attempt 1 lease_lost, running → pending",
    r"takes it over as attempt 2",
    r"4\. A worker that was not dead, only asleep",
    r"complete +lease_lost +zombie +1",
    r"5\. A marketplace breaks down",
    r"3 failures in a row: the breaker opens\. 4 jobs wait",
    r"the breaker closes",
    r"All 12 lookups have succeeded",
    r"6\. What is left",
    r"enqueued → claimed → lease_lost → claimed → succeeded",
    r"answered from the record",
    r"44 succeeded",
    r"verify: 44 jobs, \d+ events, 0 violations",
    r"Everything is as promised",
    r"Next:",
)


@pytest.fixture
def scratch(tmp_path: Path) -> Path:
    """Where the demo makes its folder."""
    folder = tmp_path / "scratch"
    folder.mkdir()
    return folder


class Unhurried(CommandLine):
    """The command line of a demo that tells the same story if one of its processes pauses for five seconds.

    Its leases and its model run last longer than that, and it waits longer than 45 s.
    """

    SITE = """
from pathlib import Path
from holdfast.cli.demo import samples, stage
stage.LEASE_SECONDS, stage.PATIENCE_SECONDS = 10.0, 250.0
from holdfast.cli.demo import killed
killed.MEMBERS = {members}
samples.CLONE = Path({clone!r})
"""

    def __init__(self, folder: Path, site: Path) -> None:
        super().__init__(folder)
        self._site = site
        shutil.copytree(ROOT / "examples", site / "examples", ignore=shutil.ignore_patterns("__pycache__"))
        take_time(site / "examples")
        (site / "sitecustomize.py").write_text(self.SITE.format(members=MEMBERS, clone=str(site)))

    def environment(self, **variables: str) -> dict[str, str]:
        path = [variables.pop("PYTHONPATH", ""), str(self._site)]
        return super().environment(**variables, PYTHONPATH=os.pathsep.join(filter(None, path)))


def take_time(examples: Path) -> None:
    """A marketplace that pauses is not given up, and its breaker is still open when the story says so."""
    for name, text, instead in (
        ("marketplaces.py", "TIMEOUT_SECONDS = 2.0", f"TIMEOUT_SECONDS = {DEADLINE_SECONDS}"),
        ("tasks.py", '"breaker_pause_seconds": 2', '"breaker_pause_seconds": 8'),
    ):
        path = examples / "price_watch" / name
        assert path.read_text().count(text) == 1
        path.write_text(path.read_text().replace(text, instead))


@pytest.fixture
def bare(tmp_path: Path) -> CommandLine:
    """In an empty folder, with no configuration."""
    folder = tmp_path / "empty"
    folder.mkdir()
    return Unhurried(folder, tmp_path / "unhurried")


def test_two_newcomers_at_once_see_every_scene_and_keep_nothing(
    bare: CommandLine, tmp_path: Path, scratch: Path
) -> None:
    """One has installed the wheel and reads; the other has the clone, and a program that reads. What is configured for
    real work, sensibly or not, is not touched and changes nothing."""
    configured = {"DATABASE_URL": "sqlite:///precious.db", "LEASE_SECONDS": "soon", "HTTP_PROXY": "http://127.0.0.1:9"}
    site = unpacked_wheel(tmp_path / "wheel")
    with (
        started(bare, scratch, PYTHONPATH=str(site), **configured) as reader,
        started(bare, scratch, "--json", REDIS_URL="redis://127.0.0.1:9", **configured) as program,
    ):
        told, said = reader.communicate(timeout=LIMIT_SECONDS)
        document, remarked = program.communicate(timeout=LIMIT_SECONDS)

    assert (reader.returncode, said) == (0, ""), told
    assert_in_order(told, SCENES)
    assert "\x1b" not in told, "no colours on a pipe"
    assert (program.returncode, remarked) == (0, ""), document
    check_document(json.loads(document))
    assert json.loads(document)["url"] not in told, "each has a port of its own"
    assert_nothing_left(scratch)
    assert list(bare.folder.iterdir()) == []


def test_on_a_terminal_it_serves_until_ctrl_c_and_a_named_database_keeps_the_story(
    bare: CommandLine, scratch: Path, postgres_database: str
) -> None:
    """The database has no tables yet: it is upgraded. A job of its own is not touched."""
    environment = bare.environment(TMPDIR=str(scratch), TERM="xterm-256color", COLUMNS="100")
    terminal = Terminal(bare.arguments("demo", "--database", postgres_database), bare.folder, environment)
    told = terminal.read_until("first screen of the README")

    assert "\x1b[" in told
    assert "Everything is as promised." in told
    assert password_of(postgres_database) not in told
    [url] = set(re.findall(r"http://127\.0\.0\.1:\d+", told))
    assert http.get(f"{url}/healthz").status_code == 200
    assert http.get(url).status_code < 500
    [link] = re.findall(r"/welcome\?code=hf_\w+", told)
    assert http.get(f"{url}{link}").status_code == 200

    terminal.press_ctrl_c()
    assert terminal.exit_code() == 0
    assert_nothing_left(scratch)
    with pytest.raises(httpx.ConnectError):
        http.get(f"{url}/healthz")
    check_what_is_kept(InProcess(bare.folder, postgres_database), told)


def test_an_interrupt_in_the_middle_leaves_nothing(bare: CommandLine, scratch: Path) -> None:
    with started(bare, scratch) as process:
        assert process.stdout is not None
        seen = list(itertools.takewhile(lambda line: "coins come in" not in line, process.stdout))
        os.kill(process.pid, signal.SIGINT)
        _out, err = process.communicate(timeout=LIMIT_SECONDS)

    assert any("ada and grace are there" in line for line in seen)
    assert (process.returncode, err) == (130, "")
    assert_nothing_left(scratch)


def test_a_worker_that_cannot_start_ends_the_story_with_what_it_said(
    inside: InProcess, scratch: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(samples, "python_path", lambda: str(scratch))
    monkeypatch.setattr(stage, "PATIENCE_SECONDS", DEADLINE_SECONDS)

    told = inside("demo").said_no().out

    assert_in_order(told, ["1. Two workers", "Broken: .* worker (ada|grace) has ended", "No module named 'examples'"])
    assert "Everything is as promised" not in told


def test_what_cannot_be_played_on_is_refused(inside: InProcess, taken_port: int) -> None:
    inside("demo", "--port", str(taken_port)).refused("port", "taken", "--port")
    inside("demo", "--database", "sqlite://").refused("in memory", "name a file")
    inside("demo", "--database", "http://127.0.0.1:9").refused("control plane", "name a database")


@pytest.fixture
def taken_port() -> Iterator[int]:
    with socket.create_server(("127.0.0.1", 0)) as server:
        yield server.getsockname()[1]


def unpacked_wheel(folder: Path) -> Path:
    """Holdfast as it is installed, without the clone around it."""
    build = [sys.executable, "-m", "hatchling", "build", "-t", "wheel", "-d", str(folder)]
    subprocess.run(build, cwd=ROOT, check=True, capture_output=True)
    [wheel] = folder.glob("*.whl")
    with zipfile.ZipFile(wheel) as archive:
        archive.extractall(folder / "site")
    take_time(folder / "site" / "holdfast" / "cli" / "demo" / "packed" / "examples")
    return folder / "site"


def started(bare: CommandLine, scratch: Path, *flags: str, **variables: str) -> subprocess.Popen[str]:
    return subprocess.Popen(
        bare.arguments("demo", *flags),
        cwd=bare.folder,
        env=bare.environment(TMPDIR=str(scratch), **variables),
        stdin=subprocess.DEVNULL,
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        text=True,
    )


class Terminal:
    """A program on a pseudo-terminal of its own, and the keys that are pressed there."""

    def __init__(self, command: Sequence[str], folder: Path, environment: Mapping[str, str]) -> None:
        ours, theirs = pty.openpty()
        self._ours = ours
        self._process = subprocess.Popen(
            [sys.executable, "-c", CONTROLLED, *command],
            cwd=folder, env=environment, stdin=theirs, stdout=theirs, stderr=theirs, start_new_session=True,
        )  # fmt: skip
        os.close(theirs)

    def read_until(self, text: str) -> str:
        told = b""
        deadline = time.monotonic() + LIMIT_SECONDS
        while text.encode() not in told:
            assert time.monotonic() < deadline, told.decode()
            assert self._process.poll() is None, told.decode()
            if select.select([self._ours], [], [], 0.2)[0]:
                told += os.read(self._ours, 65_536)
        return told.decode()

    def press_ctrl_c(self) -> None:
        os.write(self._ours, b"\x03")

    def exit_code(self) -> int:
        try:
            return self._process.wait(LIMIT_SECONDS)
        finally:
            os.close(self._ours)


# The terminal that Ctrl-C is pressed on must be the one that controls the program's session.
CONTROLLED = """
import fcntl, os, sys, termios
fcntl.ioctl(0, termios.TIOCSCTTY, 0)
os.execv(sys.argv[1], sys.argv[1:])
"""


def check_document(shown: dict[str, Any]) -> None:
    assert (shown["ok"], shown["broken"], shown["states"]) == (True, [], {"succeeded": JOBS})
    assert {shown["killed"]["worker"], shown["killed"]["taken_over_by"]} == {"ada", "grace"}
    assert [(refusal["verb"], refusal["reason"]) for refusal in shown["zombie"]["refusals"]] == REFUSALS
    assert (shown["breaker"]["moves"][0], shown["breaker"]["moves"][-1]) == ("breaker_opened", "breaker_closed")
    summary, settled = shown["summary"], shown["settled"]
    assert (settled["succeeded"], summary["records"], summary["refusals"]) == (JOBS, 84, 3)
    assert settled["lease_lost"] == summary["leases_lost"] >= 2
    assert settled["retry_scheduled"] == shown["breaker"]["failures"] >= 3
    assert settled["snoozed"] == 1
    assert (shown["verify"]["jobs"], shown["verify"]["violations"]) == (JOBS, [])


def check_what_is_kept(here: InProcess, told: str) -> None:
    """The whole story, and no way in: the token of the worker is worth nothing any more."""
    assert here("verify", "--json").succeeded().document["jobs"] == JOBS
    [killed] = re.findall(rf"jobs show\s+({UUID})", told)
    job = here("jobs", "show", killed, "--json").succeeded().document
    assert [event["event"] for event in job["events"]][:4] == ["enqueued", "claimed", "lease_lost", "claimed"]
    assert job["queue"].startswith("demo-"), "in queues of its own"
    sources = here("sources", "--json").succeeded().document["sources"]
    assert [source["name"].startswith("demo-") for source in sources] == [True] * 3
    tokens = here("tokens", "list", "--json").succeeded().document["tokens"]
    assert [token["name"] for token in tokens if token["revoked_at"] is None] == []


def password_of(url: str) -> str:
    return httpx.URL(url.replace("postgresql+psycopg", "http")).password or "\0"


def assert_in_order(text: str, patterns: Sequence[str]) -> None:
    place = 0
    for pattern in patterns:
        found = re.compile(pattern).search(text, place)
        assert found, f"{pattern} is missing after:\n{text[:place]}\n--- in:\n{text[place:]}"
        place = found.end()


def assert_nothing_left(scratch: Path) -> None:
    assert list(scratch.iterdir()) == []
    wait_until(lambda: not started_with(scratch), what="its workers have ended")


def started_with(scratch: Path) -> list[psutil.Process]:
    found = []
    for process in psutil.process_iter():
        with contextlib.suppress(psutil.Error):
            if process.environ().get("TMPDIR") == str(scratch) and process.status() != psutil.STATUS_ZOMBIE:
                found.append(process)
    return found
