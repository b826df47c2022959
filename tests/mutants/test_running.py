"""Mutants are really planted, and it is told who noticed."""

import json
import subprocess
import sys
from pathlib import Path

import pytest

from scripts.mutants.ground import copied
from scripts.mutants.mutant import REPOSITORY
from scripts.mutants.table import TABLES
from tests.mutants.planted import HARMLESS, NO_PROGRAM, QUICK


def mutants(kept: Path, *arguments: str, seconds: float = 1700) -> subprocess.CompletedProcess[str]:
    command = [sys.executable, "-m", "scripts.mutants", "--json", "--kept", str(kept), *arguments]
    return subprocess.run(command, cwd=REPOSITORY, capture_output=True, text=True, check=False, timeout=seconds)


def test_the_quick_ones_are_killed_what_changes_nothing_survives_and_what_cannot_run_is_no_kill(tmp_path: Path) -> None:
    kept = tmp_path / "kept.json"
    ran = mutants(kept, "--table", "tests.mutants.planted", seconds=500)
    assert ran.returncode == 1, ran.stderr
    found = {finding["name"]: finding for finding in json.loads(ran.stdout)}
    expected = dict.fromkeys(QUICK, "killed") | {HARMLESS.name: "survived", NO_PROGRAM.name: "broken"}
    assert {name: finding["verdict"] for name, finding in found.items()} == expected
    assert all(found[name]["killers"] for name in QUICK)
    before = kept.read_text()
    again = mutants(kept, "--table", "tests.mutants.planted", *(f"--only={name}" for name in QUICK), seconds=500)
    assert (again.returncode, kept.read_text()) == (0, before), "what was found is not run again"
    assert json.loads(again.stdout) == [found[name] for name in QUICK]


@pytest.mark.long
def test_a_test_that_is_not_there_is_told_before_anything_is_planted(tmp_path: Path) -> None:
    ran = mutants(tmp_path / "kept.json", "--table", "tests.mutants.unfindable", seconds=500)
    assert (ran.returncode, ran.stdout) == (2, "")
    assert "test_that_nobody_has_written" in ran.stderr


def test_the_real_tree_stays_as_it_is_and_processes_of_the_copy_see_the_mutant() -> None:
    real = (REPOSITORY / HARMLESS.path).read_text(encoding="utf-8")
    with copied() as ground:
        place = ground.root / HARMLESS.path
        assert ground.package() == ground.root / "src" / "holdfast"
        with ground.planted(HARMLESS):
            assert place.read_text(encoding="utf-8") == HARMLESS.planted(real)
        assert place.read_text(encoding="utf-8") == real
    assert (REPOSITORY / HARMLESS.path).read_text(encoding="utf-8") == real


@pytest.mark.long
@pytest.mark.parametrize("table", TABLES)
def test_every_mutant_is_killed_by_a_test_that_it_names(table: str, tmp_path: Path) -> None:
    ran = mutants(tmp_path / "kept.json", "--table", table)
    assert ran.returncode == 0, ran.stderr
