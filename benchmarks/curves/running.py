"""Which curves there are, and how they are run."""

from __future__ import annotations

import time
from collections.abc import Callable, Sequence

from benchmarks.curves import backlog, finished, idle, long_polls, payloads, snapshot, stores, workers
from benchmarks.curves.curve import Curve
from benchmarks.databases import Databases

CURVES: dict[str, Callable[[Databases, float], Curve]] = {
    "workers": workers.run,
    "backlog": backlog.run,
    "finished": finished.run,
    "snapshot": snapshot.run,
    "payloads": payloads.run,
    "long_polls": long_polls.run,
    "idle": idle.run,
    "stores": stores.run,
}


def run(handed: Databases, names: Sequence[str], scale: float) -> None:
    for name in names or CURVES:
        began = time.monotonic()
        curve = CURVES[name](handed, scale)
        seconds = time.monotonic() - began
        print(f"{curve.text()}\n\n({name}: {seconds:,.0f} s)\n", flush=True)
        curve.write(scale, seconds)
