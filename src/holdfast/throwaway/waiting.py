"""Wait on a condition instead of sleeping for a guessed time."""

from __future__ import annotations

import time
from collections.abc import Callable

MIN_POLL_SECONDS, MAX_POLL_SECONDS = 0.02, 0.1


def wait_until(condition: Callable[[], bool], *, what: str, timeout: float = 30.0) -> None:
    """Return as soon as the condition holds; raise TimeoutError naming what never happened."""
    began = time.monotonic()
    while not condition():
        waited = time.monotonic() - began
        if waited >= timeout:
            raise TimeoutError(f"gave up after {timeout:g} s: {what}")
        # The longer it has lasted, the less it matters to notice the end at once, and a condition may cost a query.
        time.sleep(min(max(waited / 20, MIN_POLL_SECONDS), MAX_POLL_SECONDS))
