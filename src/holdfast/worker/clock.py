"""The clock that leases are counted on: it goes on while the machine is suspended, and nobody can set it."""

from __future__ import annotations

import time

_BOOT = getattr(time, "CLOCK_BOOTTIME", None)


def uptime() -> float:
    return time.monotonic() if _BOOT is None else time.clock_gettime(_BOOT)
