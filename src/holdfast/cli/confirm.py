"""Ask before something that cannot be taken back."""

from __future__ import annotations

import sys

import typer

from holdfast.cli import output
from holdfast.domain.errors import InvalidInput


def confirm(question: str, yes: bool) -> None:
    """Ends the command with exit code 1 when the answer is no. Where nobody can be asked, `--yes` must say it."""
    if yes:
        return
    if not sys.stdin.isatty():
        raise InvalidInput("--yes", f"is needed where nobody can be asked: {question}")
    output.remark(f"{question} [y/N]")
    if sys.stdin.readline().strip().lower() not in ("y", "yes"):
        output.remark("Nothing was changed.")
        raise typer.Exit(1)
