"""What fits a terminal: rows are shared out, columns shrink, counts become sparks."""

import pytest
from hypothesis import given
from hypothesis import strategies as st

from holdfast.cli.top.frame import PLAIN_SPARKS, SPARKS, allot, fitted, sparkline
from holdfast.cli.top.sections import Cell, Column


@given(st.lists(st.integers(0, 50), max_size=8), st.integers(0, 60), st.none() | st.integers(0, 7))
def test_sections_never_get_more_rows_than_there_are_nor_than_they_want(
    wanted: list[int], room: int, chosen: int | None
) -> None:
    chosen = None if chosen is None or chosen >= len(wanted) else chosen
    given_rows = allot(wanted, room, chosen)

    assert sum(count + 1 for count in given_rows) <= room
    assert all(-1 <= count <= most for count, most in zip(given_rows, wanted, strict=True))
    used = sum(count + 1 for count in given_rows)
    assert used == min(room, sum(most + 1 for most in wanted)), "no room is left while somebody wants it"


@pytest.mark.parametrize(
    ("wanted", "room", "chosen", "expected"),
    [
        ([3, 3], 8, None, [3, 3]),
        ([9, 9], 8, None, [3, 3]),
        ([9, 9], 8, 1, [1, 5]),
        ([9, 0, 9], 7, None, [2, 0, 2]),
        ([9, 9, 9], 2, 2, [0, -1, 0]),
        ([], 5, None, []),
    ],
)
def test_each_section_has_a_row_before_the_chosen_one_gets_the_rest(
    wanted: list[int], room: int, chosen: int | None, expected: list[int]
) -> None:
    assert allot(wanted, room, chosen) == expected


def test_a_spark_is_as_high_as_its_share_and_nothing_is_lowest() -> None:
    assert sparkline([0, 1, 4, 8], 4) == "▁▂▅█"
    assert sparkline([0, 0], 4) == "▁▁"
    assert sparkline([1, 1, 2, 2], 2, PLAIN_SPARKS) == "+@"
    assert sparkline([1, 2], 0) == sparkline([], 3) == ""


@given(st.lists(st.integers(0, 10**6), max_size=60), st.integers(1, 60))
def test_a_sparkline_fits_its_cells_and_has_the_youngest_at_the_right(counts: list[int], cells: int) -> None:
    line = sparkline(counts, cells)

    assert len(line) <= cells
    assert bool(line) == bool(counts)
    assert set(line) <= set(SPARKS)
    if counts and len(counts) <= cells and counts[-1] == max(counts) > 0:
        assert line[-1] == SPARKS[-1]


def test_names_are_cut_before_figures_and_the_longest_first() -> None:
    columns = (Column("name", shrinks=True), Column("count", right=True), Column("task", shrinks=True))
    rows = [(Cell("n" * 30), Cell("1,000,000"), Cell("t" * 10))]

    assert fitted(columns, rows, 80) == [30, 9, 10]
    assert fitted(columns, rows, 40) == [17, 9, 10]
    assert fitted(columns, rows, 29) == [8, 9, 8]
    assert fitted(columns, rows, 5) == [6, 9, 6], "what is left over is cut at the edge"
