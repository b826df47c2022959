"""JSON encoders and decoders that are bound once, when the engine is imported.

They are several times faster than `json.dumps` with options, which makes an encoder on every call. And they call
nothing that user code can replace later: not `json.loads`, not `JSONEncoder.iterencode`. A runner whose codec breaks
reads and writes no more frames.
"""

from __future__ import annotations

import json
import json.encoder
import re
from collections.abc import Callable
from json import JSONDecodeError
from typing import Any

_skip_blanks = re.compile(r"[ \t\n\r]*").match


def make_encoder(*, ascii_only: bool, allow_nan: bool = False, sort_keys: bool = False) -> Callable[[Any], str]:
    """Without blanks. Cycles are not searched for: they end in a RecursionError."""
    encoder = json.JSONEncoder(
        ensure_ascii=ascii_only, allow_nan=allow_nan, sort_keys=sort_keys, separators=(",", ":"), check_circular=False
    )
    make = getattr(json.encoder, "c_make_encoder", None)
    if make is None:  # not CPython
        return encoder.encode
    text_of = json.encoder.encode_basestring_ascii if ascii_only else json.encoder.encode_basestring
    chunks = make(None, encoder.default, text_of, None, ":", ",", sort_keys, False, allow_nan)
    return lambda value: "".join(chunks(value, 0))


def make_decoder(
    *,
    parse_float: Callable[[str], Any] | None = None,
    parse_constant: Callable[[str], Any] | None = None,
) -> Callable[[str], Any]:
    """Raises ValueError for text that is no JSON, as `json.loads` does."""
    decoder: Any = json.JSONDecoder(parse_float=parse_float, parse_constant=parse_constant)
    scan = decoder.scan_once  # in C, and bound to what it calls

    def decode(text: str) -> Any:
        try:
            value, end = scan(text, _skip_blanks(text).end())  # type: ignore[union-attr]  # it matches any text
        except StopIteration as error:
            raise JSONDecodeError("Expecting value", text, error.value) from None
        if (end := _skip_blanks(text, end).end()) != len(text):  # type: ignore[union-attr]
            raise JSONDecodeError("Extra data", text, end)
        return value

    return decode
