"""A traceparent is read as W3C says, and what cannot be read is not there."""

import pytest

from holdfast.domain.traceparent import checked, parse

TRACE, SPAN = "0af7651916cd43dd8448eb211c80319c", "b7ad6b7169203331"
GOOD = f"00-{TRACE}-{SPAN}-01"


def test_its_parts_are_read_and_written() -> None:
    found = parse(f" {GOOD}\t")
    assert found is not None
    assert (found.trace_id, found.span_id, found.flags) == (int(TRACE, 16), int(SPAN, 16), 1)
    assert (str(found), checked(f" {GOOD} ")) == (GOOD, GOOD)


def test_a_later_version_may_say_more() -> None:
    assert parse(f"cc-{TRACE}-{SPAN}-01-what-comes-then") == parse(GOOD)


@pytest.mark.parametrize(
    "text",
    [
        None,
        "",
        "00-trace-01",
        f"00-{TRACE}-{SPAN}",
        f"00-{TRACE}-{SPAN}-01-more",
        f"00-{TRACE}-{SPAN}-01more",
        f"ff-{TRACE}-{SPAN}-01",
        f"00-{TRACE.upper()}-{SPAN}-01",
        f"00-{'0' * 32}-{SPAN}-01",
        f"00-{TRACE}-{'0' * 16}-01",
        f"00-{TRACE}-{SPAN}-01\n",
        f"00-{TRACE[:-1]}-{SPAN}-01",
    ],
)
def test_what_cannot_be_read(text: str | None) -> None:
    assert parse(text) is None
    assert checked(text) is None
