"""The signals of an RQ work-horse while a job of ours runs in it.

RQ arms SIGALRM against jobs that take long: time limits are Holdfast's here, so it is disarmed. SIGTERM and SIGINT make
the worker release the job; RQ's worker for Heroku says the same with SIGRTMIN. Afterwards all is as RQ had it.
"""

from __future__ import annotations

import os
import signal
import threading
from collections.abc import Iterator
from contextlib import contextmanager
from types import FrameType

from holdfast.domain.errors import ConfigurationError

_TAKEN = (signal.SIGTERM, signal.SIGINT, signal.SIGCHLD)


@contextmanager
def borrowed_signals() -> Iterator[None]:
    if threading.current_thread() is not threading.main_thread():
        raise ConfigurationError("execute_run must be called in the main thread, as every worker of RQ does")
    signal.alarm(0)
    before = {number: signal.getsignal(number) for number in _taken()}
    if callable(before.get(_imminent())):
        signal.signal(_imminent(), _as_a_stop)
    wakeup = signal.set_wakeup_fd(-1)
    try:
        yield
    finally:
        signal.set_wakeup_fd(wakeup)
        for number, handler in before.items():
            if handler is not None:  # None: not Python's to put back
                signal.signal(number, handler)


def _taken() -> list[int]:
    return [*_TAKEN, *([_imminent()] if _imminent() else [])]


def _imminent() -> int:
    return int(getattr(signal, "SIGRTMIN", 0))  # macOS has none


def _as_a_stop(_number: int, _frame: FrameType | None) -> None:
    os.kill(os.getpid(), signal.SIGTERM)
