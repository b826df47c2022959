"""Nothing is installed that was not pinned by its hash, and what users get has licences that somebody has looked at."""

from __future__ import annotations

import pytest

from scripts.audit_dependencies import PINS, ROOT, main, pins, problems

PROJECT = (ROOT / "pyproject.toml").read_text(encoding="utf-8")
PINNED = PINS.read_text(encoding="utf-8")


def test_the_audit_of_this_environment_finds_nothing(capsys: pytest.CaptureFixture[str]) -> None:
    code = main()
    printed = capsys.readouterr()
    assert (code, printed.err) == (0, "")
    assert len(printed.out.splitlines()) > 20, "every dependency with its version and its licence"


def test_every_pin_has_one_version_and_hashes() -> None:
    found = pins(PINNED)
    assert len(found) > 50
    assert all(version and hashes for version, hashes in found.values())


@pytest.mark.parametrize(
    ("pinned", "project", "said"),
    [
        (PINNED.replace("fastapi==", "fastapi>="), PROJECT, "fastapi is not pinned to one version with its hashes"),
        (f"{PINNED}\nevil==1.0\n", PROJECT, "evil is not pinned to one version with its hashes"),
        (f"{PINNED}\n# https://mirror.example\n", PROJECT, "the pins say where packages came from"),
        (
            PINNED,
            PROJECT.replace('"httpx>=0.28"', '"httpy>=0.28"'),
            "pyproject.toml asks for httpy, which is not pinned",
        ),
        (PINNED.replace("jinja2==", "jinja3=="), PROJECT, "jinja2 is installed and not pinned"),
    ],
)
def test_what_is_wrong_is_named(pinned: str, project: str, said: str) -> None:
    assert said in list(problems(pinned, project))
