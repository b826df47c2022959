"""What failures have in common: their message without the names, numbers and ids in it.

It is found in two steps, of which the first is so simple that a database can do it: every digit becomes a `#`.
"""

from __future__ import annotations

import re
from functools import lru_cache

LONGEST_MESSAGE = 300  # characters; what comes behind them seldom tells two causes apart
DIGITS = "0123456789"
_ANY_DIGIT = str.maketrans(DIGITS, "#" * len(DIGITS))
_HEX = "[#a-fA-F]"
_DIFFERS = re.compile(
    rf"""(?<!\w)'[^']*'(?!\w) | "[^"]*" | `[^`]*`                        # something quoted
      | (?<![\w#])(?:
          {_HEX}{{8}}(?:-{_HEX}{{4}}){{3}}-{_HEX}{{12}}                  # a UUID
        | \#x{_HEX}+ | (?=[a-fA-F]*\#){_HEX}{{8,}} )(?![\w#])            # an address, a hash
      | \#+(?:[.,:]\#+)*""",
    re.VERBOSE,
)


@lru_cache(maxsize=4096)
def cause(message: str) -> str:
    """The same for messages that differ only in what they are about; of what it returns, too."""
    return " ".join(_DIFFERS.sub("#", message[:LONGEST_MESSAGE].translate(_ANY_DIGIT)).split())
