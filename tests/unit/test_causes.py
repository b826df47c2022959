"""Failures are grouped by what their messages have in common."""

from __future__ import annotations

import pytest

from holdfast.domain.causes import Dead, grouped, kernel


@pytest.mark.parametrize(
    ("one", "other"),
    [
        ("article 17 has no price", "article 4711 has no price"),
        ("no such file: '/a/b'", "no such file: '/c'"),
        ("job 0192f0c1-2222-7333-8444-555566667777 is gone", "job 0192F0C1-0000-7000-8000-000000000000 is gone"),
        ("GET https://shop.example/a?b=1 failed", "GET https://shop.example/c failed"),
        ("object at 0x7f00aa", "object at 0x12"),
        ("timed out after 3.5 s", "timed out  after\n10 s"),
        ("digest deadbeef01 differs", "digest 0123456789abcdef differs"),
    ],
)
def test_one_cause(one: str, other: str) -> None:
    assert kernel(one) == kernel(other)


@pytest.mark.parametrize(
    ("one", "other"),
    [("no price", "no title"), ("payments answered", "shop answered"), ("", "something"), ("defaced", "effaced")],
)
def test_two_causes(one: str, other: str) -> None:
    assert kernel(one) != kernel(other)


def test_the_largest_group_comes_first_and_shows_its_newest() -> None:
    dead = [
        Dead("3", "charge", "E", "order 3 is odd", None),
        Dead("2", "charge", "E", "order 2 is odd", None),
        Dead("1", "charge", None, "order 2 is odd", None),
        Dead("0", "collect", "E", "order 2 is odd", None),
    ]
    groups = grouped(dead)
    assert [(group.task, group.code, group.count, group.example_id) for group in groups] == [
        ("charge", "E", 2, "3"),
        ("charge", None, 1, "1"),
        ("collect", "E", 1, "0"),
    ]
    assert groups[0].message == "order 3 is odd"


def test_a_message_of_any_length_costs_no_more_than_its_beginning() -> None:
    assert kernel("x" * 10_000_000) == "x" * 300
