"""The live view: one thread looks, this one draws and listens to keys. A store that hangs never holds up a key."""

from __future__ import annotations

import signal
import threading
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import replace
from types import FrameType
from typing import TYPE_CHECKING, NoReturn

from holdfast.cli.session import explained
from holdfast.cli.top.frame import Standing, frame
from holdfast.cli.top.keyboard import Keyboard
from holdfast.cli.top.sight import Sight
from holdfast.domain.errors import HoldfastError

if TYPE_CHECKING:
    from rich.console import Console

DRAW_SECONDS = 0.1
LAST_LOOK_SECONDS = 2.0
ENDED = 143  # as shells report a command that was asked to end


class Looker:
    """Looks again and again, and has the last sight or what was wrong. A store that is away is asked again."""

    def __init__(self, look: Callable[[], Sight], interval: float) -> None:
        self._look = look
        self._interval = interval
        self._stopping = threading.Event()
        self._thread = threading.Thread(target=self._run, name="holdfast-top", daemon=True)
        self.sight: Sight | None = None
        self.problem: str | None = None
        self.bug: Exception | None = None

    def __enter__(self) -> Looker:
        self._thread.start()
        return self

    def __exit__(self, *_error: object) -> None:
        self._stopping.set()
        self._thread.join(LAST_LOOK_SECONDS)

    def _run(self) -> None:
        while not self._stopping.is_set():
            try:
                with explained():
                    self.sight = self._look()
                self.problem = None
            except HoldfastError as error:
                self.problem = str(error)
            except Exception as error:
                self.bug = error
                return
            self._stopping.wait(self._interval)


def watch(look: Callable[[], Sight], console: Console, standing: Standing, interval: float) -> None:
    """Until a key or a signal ends it."""
    from rich.console import Group
    from rich.live import Live

    with (
        _ended_by_signal(),
        Keyboard() as keyboard,
        Looker(look, interval) as looker,
        Live(console=console, screen=True, auto_refresh=False, redirect_stdout=False, redirect_stderr=False) as live,
    ):
        standing = replace(standing, keys=keyboard.there)
        seen, drawn = looker.sight, None
        while True:
            seen = seen if standing.paused and seen is not None else looker.sight
            if looker.bug is not None:
                raise looker.bug
            shown = replace(standing, problem=looker.problem)
            picture = (seen, shown, console.size)
            if picture != drawn:
                live.update(Group(*frame(seen, shown, console.width, console.height)), refresh=True)
                drawn = picture
            match keyboard.key(DRAW_SECONDS):
                case "quit":
                    return
                case "pause":
                    standing = replace(standing, paused=not standing.paused)
                case "next":
                    standing = replace(standing, chosen=0 if standing.chosen is None else standing.chosen + 1)
                case "previous":
                    standing = replace(standing, chosen=-1 if standing.chosen is None else standing.chosen - 1)


@contextmanager
def _ended_by_signal() -> Iterator[None]:
    """SIGTERM leaves the terminal as it was, too."""

    def end(_number: int, _frame: FrameType | None) -> NoReturn:
        raise SystemExit(ENDED)

    before = signal.signal(signal.SIGTERM, end)
    try:
        yield
    finally:
        signal.signal(signal.SIGTERM, before)
