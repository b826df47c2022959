"""Rates are compared between neighbours in time."""

from __future__ import annotations

from typing import Any

from benchmarks.peers.order import round_of, rounds
from benchmarks.peers.ratios import Ratio, of_neighbours
from benchmarks.peers.results import DRAIN_ONE, Results, Sample, merged


def taken(name: str, *rates: tuple[float, Any]) -> list[Sample]:
    return [Sample(name, DRAIN_ONE, at, {"rate": rate}) for at, rate in rates]


def test_a_ratio_is_over_the_mean_of_the_neighbours_on_both_sides() -> None:
    theirs = taken("theirs", (0, 50.0), (10, 100.0), (30, 300.0), (40, 1.0))
    assert of_neighbours(taken("ours", (20, 400.0)), theirs, "rate") == Ratio(2.0, 2.0, 2.0, 1)


def test_the_median_of_several_is_told_with_their_range() -> None:
    """The machine is half as fast in the second half: the ratio does not care."""
    ours = taken("ours", (1, 100.0), (3, 50.0), (5, 80.0))
    theirs = taken("theirs", (2, 100.0), (4, 50.0))
    ratio = of_neighbours(ours, theirs, "rate")
    assert ratio == Ratio(1.0, 50 / 75, 1.6, 3)


def test_without_a_neighbour_there_is_no_ratio() -> None:
    assert of_neighbours(taken("ours", (1, 100.0)), [], "rate") is None
    assert of_neighbours([], taken("theirs", (1, 100.0)), "rate") is None


def test_a_measurement_that_failed_is_nobodys_neighbour() -> None:
    theirs = taken("theirs", (0, 100.0), (9, None))
    assert of_neighbours(taken("ours", (10, 50.0), (11, None)), theirs, "rate") == Ratio(0.5, 0.5, 0.5, 1)


def test_measurements_of_different_runs_are_no_neighbours() -> None:
    ours, theirs = taken("ours", (2, 100.0)), taken("theirs", (1, 50.0))
    machine = {"cores": "2"}
    both = merged([Results("then", machine, samples=ours), Results("now", machine, samples=theirs)])
    assert of_neighbours(both.of("ours", DRAIN_ONE), both.of("theirs", DRAIN_ONE), "rate") is None
    assert both.variants() == ["ours", "theirs"]


def test_the_reference_comes_again_after_every_few_others() -> None:
    names = ["a", "b", "c", "d", "e", "ours", "reference"]
    order = round_of(names, [("reference", "ours")], "reference", turn=0)
    assert order == ["reference", "ours", "a", "b", "c", "d", "reference", "e", "reference"]


def test_every_other_round_is_the_other_way_round() -> None:
    names = ["ours", "reference", "a"]
    forth = round_of(names, [("reference", "ours")], "reference", turn=0)
    assert round_of(names, [("reference", "ours")], "reference", turn=1) == forth[::-1]


def test_who_ends_a_round_and_begins_the_next_is_measured_once_there() -> None:
    names = ["ours", "reference", "a"]
    order = rounds(names, [("reference", "ours")], "reference", 2)
    assert order == ["reference", "ours", "a", "reference", "a", "ours", "reference"]


def test_somebody_who_is_alone_is_measured_in_every_round() -> None:
    assert rounds(["a"], [], "reference", 3) == ["a"] * 3
    assert rounds(["a", "b"], [], "reference", 2) == ["a", "b", "b", "a"]


def test_only_what_was_asked_for_is_measured() -> None:
    assert round_of(["a"], [("reference", "ours"), ("x", "y")], "reference", turn=0) == ["a"]
