"""Two Linux process attributes that Python does not wrap. Elsewhere they are no-ops."""

from __future__ import annotations

import ctypes
import os
import signal
import sys

_SET_PARENT_DEATH_SIGNAL = 1
_SET_CHILD_SUBREAPER = 36


def set_parent_death_signal(signal_number: int = signal.SIGKILL) -> None:
    """Ask the kernel to signal this process when the *thread* that started it ends.

    The parent may have died before this call: compare `os.getppid()` with the expected parent afterwards.
    """
    _prctl(_SET_PARENT_DEATH_SIGNAL, int(signal_number))


def set_child_subreaper() -> None:
    """Adopt orphaned descendants, so that none can leave this process's tree by forking twice."""
    _prctl(_SET_CHILD_SUBREAPER, 1)


def _prctl(option: int, value: int) -> None:
    if sys.platform != "linux":
        return
    library = ctypes.CDLL(None, use_errno=True)
    # prctl is variadic and reads unsigned longs: plain ints would leave the upper halves undefined.
    arguments = [ctypes.c_ulong(number) for number in (value, 0, 0, 0)]
    if library.prctl(ctypes.c_int(option), *arguments) != 0:
        number = ctypes.get_errno()
        raise OSError(number, os.strerror(number))
