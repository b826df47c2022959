"""Batches are split by number and by size, in order."""

import pytest

from holdfast.remote.portions import MOST_BYTES, portions

HALF = MOST_BYTES // 2


def body(item: tuple[str, int]) -> dict[str, str]:
    """One member whose JSON has that many bytes."""
    name, size = item
    return {name: "x" * (size - len(f'{{"{name}":""}}'))}


@pytest.mark.parametrize(
    ("sizes", "expected"),
    [
        ([], []),
        ([10, 10, 10], ["abc"]),
        ([10, 10, 10, 10, 10, 10, 10], ["abc", "def", "g"]),
        ([HALF, HALF, 10], ["ab", "c"]),
        ([HALF, HALF + 1, 10], ["a", "bc"]),
        ([10, 2 * MOST_BYTES, 10], ["a", "b", "c"]),
        ([HALF, 10, 10, HALF, HALF], ["abc", "de"]),
    ],
    ids=[
        "nothing",
        "all fit",
        "too many",
        "exactly full",
        "one byte over",
        "one alone is too large",
        "anew after each",
    ],
)
def test_request_takes_as_many_as_fit_and_the_next_one_starts_empty(sizes: list[int], expected: list[str]) -> None:
    items = list(zip("abcdefg", sizes, strict=False))
    found = list(portions(items, body, 3))
    assert ["".join(name for name, _size in some) for some, _bodies in found] == expected
    assert [bodies for _some, bodies in found] == [[body(item) for item in some] for some, _bodies in found]
