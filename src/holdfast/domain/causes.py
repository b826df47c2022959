"""What failures have in common: their message without the names, numbers and ids in it."""

from __future__ import annotations

import re
from functools import lru_cache

LONGEST_MESSAGE = 300  # characters; what comes behind them seldom tells two causes apart
_DIFFERS = re.compile(
    r"""(?<!\w)'[^']*'(?!\w) | "[^"]*" | `[^`]*`        # something quoted
      | \b[0-9a-fA-F]{8}(?:-[0-9a-fA-F]{4}){3}-[0-9a-fA-F]{12}\b
      | \b0x[0-9a-fA-F]+\b | \b(?=[a-fA-F]*\d)[0-9a-fA-F]{8,}\b
      | \d+(?:[.,:]\d+)*""",
    re.VERBOSE,
)


@lru_cache(maxsize=4096)
def cause(message: str) -> str:
    """The same for messages that differ only in what they are about."""
    return " ".join(_DIFFERS.sub("#", message[:LONGEST_MESSAGE]).split())
