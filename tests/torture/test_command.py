"""`holdfast torture` as a command: what it refuses, that it keeps its hands off what is not its own, how it ends."""

import json
import signal
import subprocess
import tempfile
from pathlib import Path

import psutil
import pytest

from holdfast.cli.session import Session
from holdfast.cli.torture import _ground
from holdfast.domain.job import NewJob
from holdfast.torture.small_disk import SmallDisk
from tests.acceptance.command_line import CommandLine, InProcess
from tests.chaos.databases import opened, query
from tests.servers.waiting import DEADLINE_SECONDS, gone, wait_until

BUSY = ("--patience", "20")  # this machine has other tests to run: how long a recovery takes is not judged here


def torture(holdfast: CommandLine, *flags: str, timeout: float = 500.0) -> tuple[int, str, str]:
    done = subprocess.run(
        holdfast.arguments("torture", *flags),
        cwd=holdfast.folder,
        env=holdfast.environment(),
        stdin=subprocess.DEVNULL,
        capture_output=True,
        text=True,
        timeout=timeout,
        check=False,
    )
    return done.returncode, done.stdout, done.stderr


def mounted() -> set[str]:
    """Where small disks are."""
    found = [line.split() for line in Path("/proc/self/mounts").read_text().splitlines()]
    return {place for device, place, *_ in found if device == "holdfast"}


@pytest.fixture
def holdfast(tmp_path: Path) -> CommandLine:
    return CommandLine(tmp_path)


@pytest.mark.parametrize(
    ("flags", "said"),
    [
        (("--minutes", "0"), "--minutes"),
        (("--faults", "worker-killed,earthquake"), "earthquake"),
        (("--rate", "0"), "--rate"),
        (("--seed", "-1"), "--seed"),
        (("--patience", "0"), "--patience"),
    ],
)
def test_what_makes_no_sense_is_refused_before_anything_is_started(
    tmp_path: Path, flags: tuple[str, ...], said: str
) -> None:
    holdfast = InProcess(tmp_path)
    holdfast("torture", *flags).refused(said)
    assert list(holdfast.folder.iterdir()) == []


def test_without_a_name_the_ledger_is_a_throwaway_file(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """DATABASE_URL is not a name for it: the user's own store stays untouched."""
    monkeypatch.setenv("DATABASE_URL", f"sqlite:///{tmp_path}/mine.db")
    temporary = tmp_path / "temporary"
    temporary.mkdir()
    monkeypatch.setattr(tempfile, "tempdir", str(temporary))
    monkeypatch.setattr(SmallDisk, "available", lambda: "no disk here")

    ground = _ground(Session(), postgres=False)

    [folder] = temporary.iterdir()
    assert (ground.url, ground.no_disk) == (f"sqlite:///{folder}/torture.db", "no disk here")
    ground.close()
    assert list(tmp_path.rglob("*")) == [temporary]


def test_a_short_run_of_faults_breaks_no_rule_and_touches_nothing_beside_it(tmp_path: Path, postgres_url: str) -> None:
    """Twelve seconds of faults: which of them have their turn depends on the machine, what must hold does not."""
    holdfast = CommandLine(tmp_path, postgres_url)
    with opened(postgres_url) as store:
        job_id = store.enqueue(NewJob(task="mine", queue="bulk")).id
    code, out, err = torture(holdfast, "--minutes", "0.2", "--seed", "9", "--rate", "20", "--json", *BUSY)
    assert code == 0, f"{err}\n{out[-4000:]}"
    result = json.loads(out)
    assert result["broken"] == []
    assert result["drained_seconds"] is not None
    assert set(result["load"]["by_door"]) >= {"database", "http", "redis", "rq", "contract"}
    assert result["strikes"]
    # The rules were held against something, those about rare things aside.
    for rule in ("lost", "not_ended", "phantom", "untrue_answer", "attempt_twice", "wrongly_charged", "tick_twice"):
        assert result["rules_checked"][rule] > 0, rule
    assert "--seed 9" in (tmp_path / "holdfast-torture.html").read_text()
    assert query(postgres_url, "SELECT CAST(id AS text), state, seq FROM holdfast_jobs") == [(job_id, "pending", 1)]
    assert query(postgres_url, "SELECT datname FROM pg_database WHERE datname LIKE 'holdfast_torture%'") == []


@pytest.mark.parametrize("own", ["postgres", pytest.param("sqlite", marks=pytest.mark.long)])
def test_interrupted_it_leaves_nothing_behind(holdfast: CommandLine, own: str) -> None:
    """Its own database, every process and every disk."""
    flags = ["--minutes", "5", "--rate", "5", "--faults", "worker-frozen,tree-frozen"]
    before = mounted()
    started = subprocess.Popen(
        holdfast.arguments("torture", *(["--postgres"] if own == "postgres" else []), *flags),
        cwd=holdfast.folder,
        env=holdfast.environment(),
        stdin=subprocess.DEVNULL,
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        text=True,
    )
    assert started.stderr is not None
    said = ""
    while " now " not in said:
        line = started.stderr.readline()
        assert line, said
        said += line
    below = psutil.Process(started.pid).children(recursive=True)
    assert below
    disks = mounted() - before
    assert disks or SmallDisk.available() is not None
    started.send_signal(signal.SIGTERM)
    started.communicate(timeout=DEADLINE_SECONDS)
    assert started.returncode == 130
    wait_until(lambda: all(gone(process.pid) for process in below), what="everybody whom it started is gone")
    assert list(holdfast.folder.iterdir()) == []
    assert not [disk for disk in disks if Path(disk).is_mount()]


@pytest.mark.long
@pytest.mark.timeout(3600)
def test_thirty_minutes_on_postgres(holdfast: CommandLine) -> None:
    code, out, err = torture(
        holdfast, "--postgres", "--minutes", "30", "--seed", "2026", "--rate", "80", "--json", *BUSY, timeout=3500
    )
    assert code == 0, f"{err}\n{out[-4000:]}"
    result = json.loads(out)
    assert result["load"]["jobs"] >= 100_000
    assert len(result["strikes"]) >= 100
    assert result["left_out"] == {}


@pytest.mark.long
@pytest.mark.timeout(1800)
def test_ten_minutes_on_sqlite(holdfast: CommandLine) -> None:
    flags = ("--minutes", "10", "--seed", "2026", "--rate", "200", "--json", *BUSY)
    code, out, err = torture(holdfast, *flags, timeout=1700)
    assert code == 0, f"{err}\n{out[-4000:]}"
    result = json.loads(out)
    assert len(result["strikes"]) >= 50
    assert set(result["left_out"]) <= {"postgres-stopped", "backends-terminated", "writes-refused"}
