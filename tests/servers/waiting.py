"""Wait on a condition instead of sleeping for a guessed time."""

import psutil

from holdfast.throwaway.waiting import wait_until

__all__ = ["gone", "wait_until"]


def gone(pid: int) -> bool:
    """Not there, or dead and only not waited for."""
    try:
        return psutil.Process(pid).status() == psutil.STATUS_ZOMBIE
    except psutil.NoSuchProcess:
        return True
