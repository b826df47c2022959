"""The programs in docs/commands.md, as printed there."""

import re
from pathlib import Path

import pytest

from holdfast.domain.outcome import Failed, Succeeded
from tests.runners.commanding import run

PAGE = Path(__file__).parents[2] / "docs" / "commands.md"


@pytest.fixture
def program(request: pytest.FixtureRequest, tmp_path: Path) -> list[str]:
    language: str = request.param
    found = re.search(rf"<!-- example: {language} -->\n```\w+\n(.*?)```", PAGE.read_text(), re.DOTALL)
    assert found is not None
    path = tmp_path / "example"
    path.write_text(found[1])
    return [language, str(path)]


@pytest.mark.parametrize("program", ["bash"], indirect=True)
def test_bash(program: list[str]) -> None:
    ran = run(*program, payload={"text": "to be or not to be"})
    assert ran.outcome == Succeeded({"words": 6})
    assert ran.heard.values == [{"done": 1, "total": 2, "note": "counting"}]
    assert ran.heard.lines[0].message.startswith("counting for job")
    refused = run(*program).outcome
    assert isinstance(refused, Failed)
    assert (refused.error.code, refused.error.retryable, refused.exit_code) == ("no_text", False, 65)


@pytest.mark.parametrize("program", ["node"], indirect=True)
def test_node(program: list[str]) -> None:
    ran = run(*program, payload={"numbers": [1, 2, 3.5]})
    assert ran.outcome == Succeeded({"sum": 6.5})
    assert ran.heard.values[-1] == {"done": 3, "total": 3}
    assert [(line.message, line.fields) for line in ran.heard.lines] == [("added up", {"count": 3})]
    refused = run(*program, payload={"numbers": 5}).outcome
    assert isinstance(refused, Failed)
    assert (refused.error.code, refused.error.retryable) == ("no_numbers", False)
