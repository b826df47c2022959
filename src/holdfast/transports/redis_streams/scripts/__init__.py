"""What happens in Redis, one atomic step a file. Every file begins with the keys and arguments that it is given.

Only commands of Redis 6.2 are used. A step that adds to a stream goes on where Redis is full: what cannot be added is
offered again by the sweeper, and what is in the way must be removed in any case.
"""

from __future__ import annotations

from functools import cache
from importlib.resources import files


@cache
def text(name: str) -> str:
    return files(__name__).joinpath(f"{name}.lua").read_text(encoding="utf-8")
