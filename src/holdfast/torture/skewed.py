"""Processes whose wall clock jumps, and those that they start.

    python -m holdfast.torture.skewed --clock FILE -- MODULE ARGUMENTS…
    python -m holdfast.torture.skewed --clock FILE -- -c CODE

becomes `python -m MODULE ARGUMENTS…` (or whatever else Python is told) under a clock that a `SkewedClock` of the same
file sets. The way into every Python is a folder on its path with a `sitecustomize`: it works before the first import of
anything, in runners, which are exec'd, as well, and needs nothing installed. `SkewedClock.environment()` is the same
for processes that somebody starts otherwise. Pythons that are told to look at no variables (-I, -E, -S) keep the right
time, and so does every other program.

On SQLite a worker's clock is the store's: there, a jump of some processes and not of others is something that cannot
happen, since a file's processes are on one machine.
"""

from __future__ import annotations

import argparse
import os
import sys
from collections.abc import Mapping, Sequence
from pathlib import Path

from holdfast.torture.shifting import NUMBER, open_number

CLOCK = "HOLDFAST_TORTURE_CLOCK"
HOOK = Path(__file__).with_name("skew_hook")


class SkewedClock:
    """Made with the right time, unless the file is there already. Jumps take effect at once, wherever it is in use."""

    def __init__(self, path: Path) -> None:
        self.path = path.absolute()
        if not self.path.exists():
            self.path.write_bytes(NUMBER.pack(0.0))
        self._memory = open_number(str(self.path))

    @property
    def offset(self) -> float:
        seconds: float = NUMBER.unpack_from(self._memory)[0]
        return seconds

    def jump(self, seconds: float) -> None:
        """From where it is, forward or back."""
        NUMBER.pack_into(self._memory, 0, self.offset + seconds)

    def right(self) -> None:
        """Again the right time."""
        NUMBER.pack_into(self._memory, 0, 0.0)

    def environment(self, given: Mapping[str, str] | None = None) -> dict[str, str]:
        """This (else ours), with what puts a Python process and its children under this clock."""
        variables = dict(os.environ if given is None else given)
        paths = [str(HOOK), *filter(None, [variables.get("PYTHONPATH")])]
        return variables | {CLOCK: str(self.path), "PYTHONPATH": os.pathsep.join(paths)}

    def command(self, *words: str) -> list[str]:
        """That runs a module, given with its arguments, under this clock."""
        return [sys.executable, "-m", "holdfast.torture.skewed", "--clock", str(self.path), "--", *words]


def main(arguments: Sequence[str]) -> None:
    parser = argparse.ArgumentParser(prog="holdfast.torture.skewed")
    parser.add_argument("--clock", type=Path, required=True)
    parser.add_argument("words", nargs="+")
    given = parser.parse_args(arguments)
    words = given.words if given.words[0].startswith("-") else ["-m", *given.words]
    os.execve(sys.executable, [sys.executable, *words], SkewedClock(given.clock).environment())


if __name__ == "__main__":
    main(sys.argv[1:])
