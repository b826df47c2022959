"""Values of the command line come out as Typer alone would convert them, with pydantic loaded or not."""

from collections.abc import Callable
from enum import StrEnum
from typing import Annotated, Any, Literal

import pytest
import typer
from typer.core import TyperCommand
from typer.main import get_command

from holdfast.cli.given import LightCommand


class Colour(StrEnum):
    RED = "red"
    BLUE = "blue"


def outcome(cls: type[TyperCommand], words: list[str]) -> Any:
    """What the function is given, or how Typer refuses the words."""
    seen: list[Any] = []
    app = typer.Typer(add_completion=False)

    def command(
        number: int = 1,
        maybe: int | None = None,
        bounded: Annotated[int, typer.Option(min=1, max=9)] = 5,
        fraction: float = 0.5,
        text: str = "text",
        kind: Literal["a", "b"] = "a",
        colour: list[Colour] | None = None,
        flag: bool = False,
        rest: Annotated[list[str] | None, typer.Argument()] = None,
    ) -> None:
        seen.append((number, maybe, bounded, fraction, text, kind, colour, flag, rest))

    app.command("command", cls=cls)(command)
    try:
        get_command(app).main(words, standalone_mode=False)
    except typer.TyperException as error:
        return error.format_message()
    return seen


WORDS = [
    "",
    "--number 7",
    "--number 007",
    "--number -3",
    "--number +3",
    "--number 1_000",
    "--number 1.0",
    "--number ٣",
    "--number x",
    "--number 123456789012345678901234567890",
    "--maybe 0",
    "--maybe x",
    "--bounded 9",
    "--bounded 10",
    "--bounded 0",
    "--fraction 1",
    "--fraction x",
    "--text 7",
    "--kind b",
    "--kind B",
    "--kind c",
    "--colour red --colour blue",
    "--colour green",
    "--flag",
    "--no-flag",
    "one two",
]


@pytest.mark.parametrize("words", WORDS)
def test_a_value_is_what_typer_alone_makes_of_it(words: str) -> None:
    assert repr(outcome(LightCommand, words.split())) == repr(outcome(TyperCommand, words.split()))


def test_a_command_can_be_run_again_with_other_values() -> None:
    found: list[int] = []
    app = typer.Typer(add_completion=False)

    def command(number: int = 1) -> None:
        found.append(number)

    app.command("command", cls=LightCommand)(command)
    run: Callable[..., Any] = get_command(app).main
    for words in (["--number", "-1"], ["--number", "2"], []):
        run(words, standalone_mode=False)
    assert found == [-1, 2, 1]
