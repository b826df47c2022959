"""Upgrades in other processes."""

import subprocess
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

REPOSITORY = Path(__file__).parents[2]


class Process:
    """A module of the tests that talks in lines."""

    def __init__(self, popen: subprocess.Popen[str]) -> None:
        self._popen = popen

    def read(self) -> str:
        assert self._popen.stdout is not None
        return self._popen.stdout.readline().strip()

    def go_on(self) -> None:
        assert self._popen.stdin is not None
        self._popen.stdin.write("\n")
        self._popen.stdin.flush()

    def kill(self) -> None:
        self._popen.kill()
        self._popen.wait()


@contextmanager
def running(module: str, url: str, *arguments: object) -> Iterator[Process]:
    command = [sys.executable, "-m", f"tests.migration.{module}", url, *map(str, arguments)]
    with subprocess.Popen(command, cwd=REPOSITORY, stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True) as popen:
        try:
            yield Process(popen)
        finally:
            popen.kill()  # does nothing to a process that has ended
