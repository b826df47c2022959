"""Wait on a condition instead of sleeping for a guessed time."""

import time
from collections.abc import Callable

import psutil

POLL_SECONDS = 0.02


def wait_until(condition: Callable[[], bool], *, what: str, timeout: float = 30.0) -> None:
    """Return as soon as the condition holds; raise TimeoutError naming what never happened."""
    deadline = time.monotonic() + timeout
    while not condition():
        if time.monotonic() >= deadline:
            raise TimeoutError(f"gave up after {timeout:g} s: {what}")
        time.sleep(POLL_SECONDS)


def gone(pid: int) -> bool:
    """Not there, or dead and only not waited for."""
    try:
        return psutil.Process(pid).status() == psutil.STATUS_ZOMBIE
    except psutil.NoSuchProcess:
        return True
