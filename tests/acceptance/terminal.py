"""A command in a terminal of its own: a real pseudo-terminal, keys that are pressed, and what is on the screen."""

import fcntl
import os
import pty
import re
import signal
import struct
import subprocess
import termios
import threading
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

from tests.servers.waiting import DEADLINE_SECONDS, wait_until

_ESCAPES = re.compile(r"\x1b\[[0-9;?]*[A-Za-z]|\x1b[=>()][0-9A-Za-z]?")
HOME = "\x1b[H"
ALTERNATE, NORMAL = "\x1b[?1049h", "\x1b[?1049l"
SHOW_CURSOR, HIDE_CURSOR = "\x1b[?25h", "\x1b[?25l"


class Terminal:
    """The same terminal is stdin, stdout and stderr of the command, unless one of them is said to go elsewhere."""

    def __init__(
        self,
        arguments: list[str],
        folder: Path,
        environment: dict[str, str],
        size: tuple[int, int],
        stdout: int | None = None,
    ) -> None:
        self._leader, follower = pty.openpty()
        self.columns, self.rows = size
        fcntl.ioctl(follower, termios.TIOCSWINSZ, struct.pack("HHHH", self.rows, self.columns, 0, 0))
        self.attributes_before = self.attributes(follower)
        self.attributes_after: list[Any] = []
        self.process = subprocess.Popen(
            arguments,
            cwd=folder,
            env=environment | {"TERM": "xterm-256color"},
            stdin=follower,
            stdout=follower if stdout is None else stdout,
            stderr=follower,
            start_new_session=True,
            preexec_fn=lambda: fcntl.ioctl(0, termios.TIOCSCTTY, 0),
        )
        self._follower: int | None = follower
        self._written = bytearray()
        self._reader = threading.Thread(target=self._read, daemon=True)
        self._reader.start()

    @staticmethod
    def attributes(descriptor: int) -> list[Any]:
        return termios.tcgetattr(descriptor)

    @property
    def restored(self) -> bool:
        """The screen of before, with a cursor, and keys that are lines again."""
        last = max(self.written.rfind(ALTERNATE), self.written.rfind(NORMAL))
        on_its_own_screen = self.written[last:].startswith(ALTERNATE)
        cursor = self.written.rfind(SHOW_CURSOR) > self.written.rfind(HIDE_CURSOR)
        return cursor and not on_its_own_screen and self.attributes_after == self.attributes_before

    @property
    def written(self) -> str:
        return self._written.decode(errors="replace")

    @property
    def text(self) -> str:
        """Everything that was ever written, without what steers the terminal."""
        return _ESCAPES.sub("", self.written).replace("\r", "")

    @property
    def screen(self) -> list[str]:
        """The last frame that was drawn whole, line by line."""
        frames = self.written.partition(NORMAL)[0].split(HOME)
        lines = _ESCAPES.sub("", frames[-1]).replace("\r", "").split("\n") if len(frames) > 1 else []
        return [line.rstrip() for line in lines]

    def shows(self, *texts: str) -> bool:
        content = "\n".join(self.screen)
        return all(text in content for text in texts)

    def wait_to_show(self, *texts: str) -> None:
        try:
            wait_until(lambda: self.shows(*texts) or self.process.poll() is not None, what="the screen")
        except TimeoutError:
            raise AssertionError(f"{texts} never showed; the screen is:\n" + "\n".join(self.screen)) from None
        assert self.shows(*texts), f"it ended without showing {texts}: {self.text[-2000:]}"

    def press(self, keys: str) -> None:
        os.write(self._leader, keys.encode())

    def ended(self) -> int:
        """Its exit code; by then everything it wrote is read."""
        code = self.process.wait(DEADLINE_SECONDS)
        assert self._follower is not None
        self.attributes_after = self.attributes(self._follower)
        self._read_to_the_end()
        return code

    def close(self) -> None:
        if self.process.poll() is None:
            os.killpg(self.process.pid, signal.SIGKILL)
            self.process.wait(DEADLINE_SECONDS)
        self._read_to_the_end()
        os.close(self._leader)

    def _read_to_the_end(self) -> None:
        """The reader must be gone before the number of its descriptor is: it would read from the next terminal."""
        if self._follower is not None:
            os.close(self._follower)
            self._follower = None
        self._reader.join(DEADLINE_SECONDS)
        assert not self._reader.is_alive(), "somebody else has the terminal open"

    def _read(self) -> None:
        while True:
            try:
                chunk = os.read(self._leader, 65536)
            except OSError:  # on Linux: nobody has the other end open any more
                return
            if not chunk:
                return
            self._written += chunk


@contextmanager
def terminal(
    arguments: list[str],
    folder: Path,
    environment: dict[str, str],
    size: tuple[int, int] = (120, 40),
    stdout: int | None = None,
) -> Iterator[Terminal]:
    opened = Terminal(arguments, folder, environment, size, stdout)
    try:
        yield opened
    finally:
        opened.close()
