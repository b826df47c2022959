"""Wait on a condition instead of sleeping for a guessed time."""

from __future__ import annotations

import time
from collections.abc import Callable

POLL_SECONDS = 0.02


def wait_until(condition: Callable[[], bool], *, what: str, timeout: float = 30.0) -> None:
    """Return as soon as the condition holds; raise TimeoutError naming what never happened."""
    deadline = time.monotonic() + timeout
    while not condition():
        if time.monotonic() >= deadline:
            raise TimeoutError(f"gave up after {timeout:g} s: {what}")
        time.sleep(POLL_SECONDS)
