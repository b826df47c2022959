"""The tasks of a run's jobs. No other worker knows them, so none ever claims one."""

from __future__ import annotations

import time

from holdfast import App
from holdfast.bench.ground import STAMPED, TASK

app = App(name="bench")


@app.task(name=TASK)
def nothing() -> None:
    pass


@app.task(name=STAMPED)
def stamp() -> float:
    """When user code began."""
    return time.time()
