"""The table of mutants keeps to the code and to the tests that it names."""

import ast
from collections import Counter
from functools import cache

import pytest

from scripts.mutants.mutant import REPOSITORY, Mutant
from scripts.mutants.page import PAGE
from scripts.mutants.table import MUTANTS


@pytest.mark.parametrize("mutant", MUTANTS, ids=lambda mutant: mutant.name)
def test_a_mutant_changes_one_place_and_names_tests_that_are_there(mutant: Mutant) -> None:
    text = (REPOSITORY / mutant.path).read_text(encoding="utf-8")
    assert mutant.planted(text) != text
    assert mutant.killers
    for test in mutant.tests:
        file, _, name = test.partition("::")
        assert name.partition("[")[0] in functions(file), f"{mutant.name}: there is no {test}"


@cache
def functions(file: str) -> set[str]:
    tree = ast.parse((REPOSITORY / file).read_text(encoding="utf-8"))
    return {node.name for node in tree.body if isinstance(node, ast.FunctionDef)}


def test_every_mutant_has_a_name_of_its_own() -> None:
    assert [name for name, count in Counter(mutant.name for mutant in MUTANTS).items() if count > 1] == []


def test_the_page_tells_of_every_mutant_and_that_it_was_killed() -> None:
    rows = [line for line in PAGE.read_text(encoding="utf-8").splitlines() if line.startswith("| `")]
    told = {row.split("`")[1]: row for row in rows}
    assert list(told) == [mutant.name for mutant in MUTANTS], "run: python -m scripts.mutants"
    for mutant in MUTANTS:
        assert mutant.promise in told[mutant.name], "run: python -m scripts.mutants"
        assert any(killer in told[mutant.name] for killer in mutant.killers), f"nobody has killed {mutant.name}"
