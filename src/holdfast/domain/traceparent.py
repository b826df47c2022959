"""The context of a span as text, as W3C Trace Context has it: `00-<trace id>-<span id>-<flags>`.

What cannot be read is as if it were not there: that is the standard's own rule, and a trace is never worth a job.
"""

from __future__ import annotations

import re
from typing import NamedTuple

# A version that we do not know may say more after the flags; the first one must not.
_FORM = re.compile(r"(?!ff)([0-9a-f]{2})-([0-9a-f]{32})-([0-9a-f]{16})-([0-9a-f]{2})(-.*)?")


class Traceparent(NamedTuple):
    trace_id: int
    span_id: int
    flags: int

    def __str__(self) -> str:
        return f"00-{self.trace_id:032x}-{self.span_id:016x}-{self.flags:02x}"


def parse(text: str | None) -> Traceparent | None:
    found = None if text is None else _FORM.fullmatch(text.strip(" \t"))
    if found is None or (found[1] == "00" and found[5] is not None):
        return None
    read = Traceparent(int(found[2], 16), int(found[3], 16), int(found[4], 16))
    return read if read.trace_id and read.span_id else None


def checked(text: str | None) -> str | None:
    """The text itself if it means something."""
    return None if text is None or parse(text) is None else text.strip(" \t")
