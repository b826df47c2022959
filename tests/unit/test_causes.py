"""What failures have in common, and what not."""

from __future__ import annotations

import pytest

from holdfast.domain.causes import cause


@pytest.mark.parametrize(
    ("one", "other"),
    [
        ("could not fetch item 17 after 3 tries", "could not fetch item 4711 after 12 tries"),
        ("no user 'ann'", "no user 'o.brien@example.com'"),
        ('KeyError: "a b"', 'KeyError: "c"'),
        ("object at 0x7f8a24 died", "object at 0x1 died"),
        ("job 01890a5d-ac96-774b-bcce-b302099a8057 is gone", "job 01a1e6f9-cc66-7378-a889-8030741218b0 is gone"),
        ("commit deadbeef12 failed\n  here", "commit 0123456789 failed here"),
        ("took 1.5 s at 12:30:01", "took 22,75 s at 9:05:00"),
    ],
)
def test_messages_that_differ_in_what_they_are_about_have_one_cause(one: str, other: str) -> None:
    assert cause(one) == cause(other)


@pytest.mark.parametrize(
    ("one", "other"),
    [
        ("connection refused", "connection reset"),
        ("the user can't pay and won't", "the user can't wait and won't"),
        ("defaced facade", "a facade"),
        ("", "x"),
    ],
)
def test_messages_that_say_something_else_have_another(one: str, other: str) -> None:
    assert cause(one) != cause(other)


def test_a_message_of_any_length_costs_the_same() -> None:
    assert len(cause("x" * 1_000_000)) <= 300
