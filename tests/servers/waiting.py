"""Wait for a condition, never for a guessed time."""

import os
from collections.abc import Callable

import psutil

from holdfast.throwaway import waiting

# For whatever must happen. Enough for a machine that is ten times slower; a green run never waits for it.
# Trials of mutants shorten it: there, what must happen often does not.
DEADLINE_VARIABLE = "TEST_DEADLINE_SECONDS"
DEADLINE_SECONDS = float(os.environ.get(DEADLINE_VARIABLE, "120"))


def wait_until(condition: Callable[[], bool], *, what: str, timeout: float = DEADLINE_SECONDS) -> None:
    """Return when the condition holds; raise TimeoutError that names what never happened."""
    waiting.wait_until(condition, what=what, timeout=timeout)


def gone(pid: int) -> bool:
    """The process has ended, even if its parent has not waited for it."""
    try:
        return psutil.Process(pid).status() == psutil.STATUS_ZOMBIE
    except psutil.NoSuchProcess:
        return True
