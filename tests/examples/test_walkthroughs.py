"""docs/walkthroughs.md: the walks as a reader takes them, and their output as it is printed there."""

from __future__ import annotations

import re
from contextlib import suppress
from pathlib import Path

import psutil
import pytest

from tests.chaos.conftest import postgres_template, postgres_url
from tests.chaos.databases import assert_verified, query
from tests.examples.shell import ROOT, block, cloned, type_in
from tests.servers.waiting import DEADLINE_SECONDS, wait_until

__all__ = ["postgres_template", "postgres_url"]

PAGE = (ROOT / "docs" / "walkthroughs.md").read_text(encoding="utf-8")
SHARE = re.compile(r"^  (ann|bob)-\w+ +(\d+)$", re.MULTILINE)


BARRIER = """
    Path(f"runner-{os.getpid()}").touch()
    while len(list(Path().glob("runner-*"))) < 2:
        time.sleep(0.02)
"""


@pytest.fixture
def clone(tmp_path: Path) -> Path:
    return cloned("walkthroughs", tmp_path).parents[1]


def take(walk: str, clone: Path, database: str | None = None) -> str:
    commands = block(PAGE, f"run: {walk}")
    if database is not None:
        commands = commands.replace(f"{walk}.py", f"{walk}.py --database '{database}'")
    said = type_in(commands, clone)
    wait_until(lambda: left_running(clone) == [], what="all that the walk started has ended")
    return said


def left_running(clone: Path) -> list[str]:
    """Processes that were started in the walk's folder."""
    found = []
    for process in psutil.process_iter():
        try:
            if process.status() != psutil.STATUS_ZOMBIE and process.cwd() == str(clone / "examples" / "walkthroughs"):
                found.append(" ".join(process.cmdline()))
        except (psutil.NoSuchProcess, psutil.AccessDenied):
            continue
    return found


def url_of(clone: Path) -> str:
    return f"sqlite:///{clone / 'examples' / 'walkthroughs' / 'holdfast.db'}"


def alike(said: str) -> str:
    """Without what is another each time: ids, who ran how many, who was first, what else the store holds."""
    said = SHARE.sub(r"  \1 SHARE", said)
    said = re.sub(r"\b(ann|bob)-[0-9a-f]{8}\b", r"\1", said)
    said = re.sub(r"\d+ jobs, \d+ events", "all", said)
    return "\n\n".join(map(named_in_turn, said.split("\n\n")))


def named_in_turn(scene: str) -> str:
    """The first worker of a scene is called ann there."""
    if scene.startswith("bob"):
        return scene.replace("bob", "?").replace("ann", "bob").replace("?", "ann")
    return scene


def test_two_workers_hold_no_job_twice(clone: Path) -> None:
    let_both_begin(clone)
    lengthen_leases(clone)
    said = take("two_workers", clone)
    assert alike(said) == alike(block(PAGE, "shown: two_workers"))
    shares = {worker: int(jobs) for worker, jobs in SHARE.findall(said)}
    assert sum(shares.values()) == 200
    assert min(shares.values()) > 0
    assert query(url_of(clone), "SELECT state, count(*) FROM holdfast_jobs GROUP BY state") == [("succeeded", 200)]
    assert_verified(url_of(clone))
    assert statement_of_the_page() in (clone / "examples" / "walkthroughs" / "two_workers.py").read_text()


def let_both_begin(clone: Path) -> None:
    """A job waits until both workers run one: on a slow machine one of them could run all, before the other begins."""
    tasks = clone / "examples" / "walkthroughs" / "tasks.py"
    text = tasks.read_text()
    assert text.count("    time.sleep(0.02)\n") == 1
    with_imports = text.replace("import time\n", "import os\nimport time\nfrom pathlib import Path\n")
    tasks.write_text(with_imports.replace("    time.sleep(0.02)\n", BARRIER))


def statement_of_the_page() -> str:
    """As the script has it, indented."""
    [statement] = re.findall(r"```sql\n-- .*?\n(.*?)\n```", PAGE, re.DOTALL)
    return "\n".join(f"    {line}" for line in statement.splitlines())


def test_a_frozen_worker_is_refused_and_a_dead_one_is_missed(clone: Path) -> None:
    shown, said = alike(block(PAGE, "shown: dead_worker")), ""
    with suppress(AssertionError):
        said = take("dead_worker", clone)
    if alike(said) != shown:  # on a slow machine living workers also lose their leases of 2 s
        lengthen_leases(clone)
        said = take("dead_worker", clone)
    assert alike(said) == shown
    crashes = query(url_of(clone), "SELECT state, attempt, crashes, failures, result FROM holdfast_jobs")
    assert crashes == [("succeeded", 2, 1, 0, '"by attempt 2"')] * 2
    assert_verified(url_of(clone))


def lengthen_leases(clone: Path) -> None:
    stage = clone / "examples" / "walkthroughs" / "stage.py"
    text = stage.read_text()
    assert text.count('["LEASE_SECONDS"] = "2"') == 1
    assert text.count("PATIENCE_SECONDS = 60.0") == 1
    text = text.replace("PATIENCE_SECONDS = 60.0", f"PATIENCE_SECONDS = {DEADLINE_SECONDS}")
    stage.write_text(text.replace('["LEASE_SECONDS"] = "2"', '["LEASE_SECONDS"] = "20"'))
    walk = stage.with_name("dead_worker.py")
    assert walk.read_text().count("handle.result('60s')") == 2
    walk.write_text(walk.read_text().replace("'60s'", f"'{DEADLINE_SECONDS:g}s'"))
    for file in (clone / "examples" / "walkthroughs").glob("holdfast.db*"):
        file.unlink()


@pytest.mark.long
@pytest.mark.parametrize("walk", ["two_workers", "dead_worker"])
def test_on_postgres(clone: Path, postgres_url: str, walk: str) -> None:
    said = take(walk, clone, postgres_url)
    assert alike(said) == alike(block(PAGE, f"shown: {walk}"))
    assert not (clone / "examples" / "walkthroughs" / "holdfast.db").exists()
    assert_verified(postgres_url)
