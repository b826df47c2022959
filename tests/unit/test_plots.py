"""Plots are pictures that a browser can draw, in light and in dark."""

import re
from xml.etree import ElementTree

import pytest

from benchmarks.plots import Plot, Series, short

SVG = "{http://www.w3.org/2000/svg}"


def drawn(plot: Plot) -> ElementTree.Element:
    return ElementTree.fromstring(plot.svg())


def texts(plot: Plot, kind: str) -> list[str | None]:
    return [text.text for text in drawn(plot).iter(f"{SVG}text") if text.get("class") == kind]


def places(plot: Plot) -> list[list[tuple[float, float]]]:
    lines = [line.get("points", "") for line in drawn(plot).iter(f"{SVG}polyline")]
    return [[(float(x), float(y)) for x, y in (point.split(",") for point in line.split())] for line in lines]


def test_a_plot_names_its_axes_and_series_whatever_is_in_them() -> None:
    plot = Plot("a < b & c", "workers", "jobs/s", [Series("<sqlite>", [(1, 10), (2, 20)])])
    assert texts(plot, "title") == ["a < b & c"]
    assert texts(plot, "label") == ["workers", "jobs/s"]
    assert texts(plot, "name") == ["<sqlite>"]
    assert "prefers-color-scheme:dark" in plot.svg()


def test_equal_ratios_are_equal_distances_on_a_logarithmic_axis() -> None:
    plot = Plot("t", "x", "y", [Series("s", [(1_000, 1), (10_000, 10), (100_000, 100)])], log_x=True, log_y=True)
    [(first, second, third)] = places(plot)
    assert second[0] - first[0] == pytest.approx(third[0] - second[0], abs=0.2)
    assert first[1] - second[1] == pytest.approx(second[1] - third[1], abs=0.2)
    assert texts(plot, "tick")[:7] == ["1", "2", "5", "10", "20", "50", "100"]
    assert texts(plot, "tick")[7:] == ["1k", "2k", "5k", "10k", "20k", "50k", "100k"]


def test_rates_begin_at_zero_so_that_heights_can_be_compared() -> None:
    plot = Plot("t", "x", "y", [Series("s", [(1, 9_000), (2, 10_000)])])
    assert texts(plot, "tick")[0] == "0"


@pytest.mark.parametrize("values", [[(1.0, 5.0)], [(1.0, 0.0), (2.0, 0.0)], [(0.0, 1e-4), (600.0, 2e7)]])
@pytest.mark.parametrize("log_x", [False, True])
def test_every_point_is_inside_the_picture(values: list[tuple[float, float]], log_x: bool) -> None:
    if log_x:
        values = [(x + 1.0, y) for x, y in values]
    [line] = places(Plot("t", "x", "y", [Series("s", values)], log_x=log_x))
    assert all(0 <= x <= 720 and 0 <= y <= 400 for x, y in line)


def test_a_legend_that_is_too_long_for_a_row_goes_on_in_the_next() -> None:
    plot = Plot("t", "x", "y", [Series(f"a rather long name, number {n}", [(1, 1), (2, 2)]) for n in range(6)])
    rows = {text.get("y") for text in drawn(plot).iter(f"{SVG}text") if text.get("class") == "name"}
    assert len(rows) == 3
    assert max(float(x) for x in re.findall(r'class="name" x="([\d.]+)"', plot.svg())) < 720


def test_large_numbers_are_short() -> None:
    assert [short(n) for n in (0, 0.5, 250)] == ["0", "0.5", "250"]
    assert [short(n) for n in (1_000, 2_500, 10_000_000, 2e9)] == ["1k", "2.5k", "10M", "2G"]
