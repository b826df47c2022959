"""Pieces of text become lines; what a terminal would overwrite is not kept."""

import pytest

from holdfast.tasks.log_budget import MAX_LINE
from holdfast.tasks.partial_line import PartialLine


def lines_of(*pieces: str) -> tuple[list[str], str | None]:
    partial = PartialLine()
    lines = [line for piece in pieces for line in partial.feed(piece)]
    return lines, partial.rest()


@pytest.mark.parametrize(
    ("pieces", "lines", "rest"),
    [
        (["a\n"], ["a"], None),
        (["a", "\n"], ["a"], None),
        (["a", " b", "\nc"], ["a b"], "c"),
        (["a\nb\n\nc\n"], ["a", "b", "", "c"], None),
        (["\n"], [""], None),
        (["", ""], [], None),
        (["a\r\n", "b\r", "\n"], ["a", "b"], None),
        (["\r 0%", "\r 50%", "\r100%", "\n"], ["100%"], None),
        (["0%\r", "50%\r", "100%\r", "\n"], ["100%"], None),
        (["0%\r50%\r"], [], "50%"),
        (["long line\rx\n"], ["x"], None),
        (["one\rtwo\nthree\rfour"], ["two"], "four"),
    ],
)
def test_lines_and_what_is_overwritten(pieces: list[str], lines: list[str], rest: str | None) -> None:
    assert lines_of(*pieces) == (lines, rest)


def test_a_line_without_end_takes_bounded_memory() -> None:
    pieces = ["x" * 1000] * 200
    [line], rest = lines_of(*pieces, "\n")
    assert rest is None
    assert line.startswith("x" * MAX_LINE + " … [")
    assert f"{200_000 - MAX_LINE:,} more" in line
    assert lines_of(*pieces, "\rshort\n") == (["short"], None)


def test_whoever_has_enough_stops_asking() -> None:
    found = PartialLine().feed("a\nb\nc\n")
    assert next(found) == "a"
