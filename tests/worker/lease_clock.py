"""The clock on which a worker counts leases, time limits, graces and polls, moved by a test.

A test that needs the end of such a time moves the clock there. A long time then ends at once, and never too early.
"""

from __future__ import annotations

import mmap
import struct
import sys
from pathlib import Path

from holdfast.worker.clock import uptime

# The time at which the clock stands still (0: it runs), and by how much it is ahead of the machine's.
_STATE = struct.Struct("dd")
# Only the supervisor's clock moves: its runners, and every wait in the kernel, keep the machine's.
_LAUNCH = """
import mmap, struct, sys
from holdfast.worker import clock

state, machine = struct.Struct("dd"), clock.uptime
with open(sys.argv.pop(1), "r+b") as file:
    memory = mmap.mmap(file.fileno(), state.size)

def uptime():
    stopped_at, ahead = state.unpack_from(memory)
    return (stopped_at or machine()) + ahead

clock.uptime = uptime
"""
_RUN = """
from holdfast.__main__ import run
sys.exit(run())
"""


class LeaseClock:
    def __init__(self, path: Path) -> None:
        path.write_bytes(_STATE.pack(0.0, 0.0))
        self._path = path
        with path.open("r+b") as file:
            self._memory = mmap.mmap(file.fileno(), _STATE.size)

    @property
    def program(self) -> list[str]:
        """Runs a worker under this clock; stands for `python -m holdfast`."""
        return self.patched("")

    def patched(self, statements: str) -> list[str]:
        """The same, with constants of the supervisor changed before it starts."""
        return [sys.executable, "-c", _LAUNCH + statements + _RUN, str(self._path)]

    def advance(self, seconds: float) -> None:
        """Takes effect within a second, the longest sleep of a supervisor."""
        stopped_at, ahead = _STATE.unpack_from(self._memory)
        _STATE.pack_into(self._memory, 0, stopped_at, ahead + seconds)

    def freeze(self) -> None:
        """From here on nothing comes due but by `advance`."""
        _STATE.pack_into(self._memory, 0, uptime(), _STATE.unpack_from(self._memory)[1])

    def run_on(self) -> None:
        """Never back: what passed on the machine has passed here as well."""
        _STATE.pack_into(self._memory, 0, 0.0, _STATE.unpack_from(self._memory)[1])
