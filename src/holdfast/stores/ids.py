"""UUIDv7 in order: ids made by one process sort in the order they were made, also within one millisecond.

48 bits of Unix milliseconds, then a 26-bit counter that starts at a random value each millisecond, then 48 random bits.
"""

from __future__ import annotations

import os
import threading
import time

from holdfast.forks import fork_safe

_COUNTER_BITS = 26
_lock = fork_safe(threading.Lock())
_last_millisecond = 0
_counter = 0


def new_ids(count: int) -> list[str]:
    millisecond, first = _reserve(count)
    stamp, noise = f"{millisecond:012x}", os.urandom(6 * count).hex()
    beginning = f"{stamp[:8]}-{stamp[8:]}-7"
    # The counter with the variant's two bits between its halves.
    return [
        f"{beginning}{number >> 14:03x}-{0x8000 | number & 0x3FFF:04x}-{noise[at : at + 12]}"
        for number, at in zip(range(first, first + count), range(0, 12 * count, 12), strict=True)
    ]


def is_uuid7(job_id: str) -> bool:
    """For ids in canonical form. UUIDv7s sort by the time they were made at."""
    return job_id[14] == "7"


def _reserve(count: int) -> tuple[int, int]:
    """A stretch of the counter; when it does not fit any more, time is taken to be a millisecond later."""
    global _last_millisecond, _counter
    with _lock:
        millisecond = max(time.time_ns() // 1_000_000, _last_millisecond)
        if millisecond == _last_millisecond and _counter + count >= 1 << _COUNTER_BITS:
            millisecond += 1
        if millisecond > _last_millisecond:
            _last_millisecond = millisecond
            # Start in the lower quarter: room for a large batch behind it.
            _counter = int.from_bytes(os.urandom(3)) & 0xFFFFFF
        first = _counter
        _counter += count
        return millisecond, first
