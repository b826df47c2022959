"""Token buckets, and what a body may contain."""

import pytest

from holdfast.domain.errors import InvalidInput
from holdfast.domain.json_text import parse
from holdfast.serve.limits import Buckets


class Watch:
    def __init__(self) -> None:
        self.now = 100.0

    def __call__(self) -> float:
        return self.now


def test_a_bucket_gives_its_burst_and_then_its_rate() -> None:
    watch = Watch()
    buckets = Buckets(per_second=2.0, burst=3, clock=watch)
    assert [buckets.take("ann") for _ in range(3)] == [0.0] * 3
    assert buckets.take("ann") == buckets.wait("ann") == 0.5
    assert buckets.take("bob") == 0.0, "everybody has a bucket of his own"
    watch.now += 0.5
    assert buckets.wait("ann") == 0.0
    assert [buckets.take("ann"), buckets.take("ann")] == [0.0, 0.5]
    watch.now += 1000
    assert [buckets.take("ann") for _ in range(4)] == [0.0, 0.0, 0.0, 0.5], "never more than the burst"


def test_buckets_are_bounded_in_number_and_a_rate_of_zero_is_no_limit() -> None:
    watch = Watch()
    buckets = Buckets(per_second=1.0, burst=1, most=2, clock=watch)
    for name in ("a", "b", "c"):
        assert buckets.take(name) == 0.0
    assert (buckets.wait("b"), buckets.wait("c")) == (1.0, 1.0)
    assert buckets.wait("a") == 0.0, "the oldest one was given up"
    free = Buckets(per_second=0.0, burst=1)
    assert {free.take("a") for _ in range(100)} == {0.0}


DEEP = 100


@pytest.mark.parametrize(
    ("raw", "said"),
    [
        (b"[" * (DEEP + 1) + b"]" * (DEEP + 1), "nested deeper than 100"),
        (b'{"a":' * (DEEP + 1) + b"1" + b"}" * (DEEP + 1), "nested deeper than 100"),
        (b"[" * 1_000_000, "nested deeper than 100"),
        (b'{"a":' * 200_000, "nested deeper than 100"),
        (b'{"a":1,"a":2}', "the key 'a' twice"),
        (b'[{"x":{"a":1,"b":2,"a":1}}]', "the key 'a' twice"),
        (b'{"a":NaN}', "NaN is not JSON"),
        (b"[-Infinity]", "-Infinity is not JSON"),
        (b"[1e999]", "too large"),
        (b"1" * 5_000, "thousands of digits"),
        (b'"\xff"', "not UTF-8 at byte 1"),
        (b'"\xed\xa0\x80"', "not UTF-8"),
        (b'"\\ud800"', "half of a surrogate pair"),
        (b'{"\\udc00":1}', "half of a surrogate pair"),
        (b"\xef\xbb\xbf{}", "not JSON"),
        (b"{}x", "not JSON: Extra data"),
        (b"{'a':1}", "not JSON"),
        (b"\x00", "not JSON"),
    ],
)
def test_a_text_that_is_not_plain_json_is_refused(raw: bytes, said: str) -> None:
    with pytest.raises(InvalidInput, match=said):
        parse(raw, DEEP)


def test_plain_json_means_what_it_says() -> None:
    assert parse(b"[" * DEEP + b"]" * DEEP, DEEP) is not None
    assert parse('{"a": "\\ud83d\\ude00 ü", "b": [1.5, -0.0, 12345678901234567890, null, true]}'.encode(), DEEP) == {
        "a": "😀 ü",
        "b": [1.5, -0.0, 12345678901234567890, None, True],
    }
    assert parse(b"[" + b"[]," * 1000 + b"[]]", DEEP) == [[]] * 1001, "wide is not deep"
