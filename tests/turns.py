"""Tests of processes, commands and HTTP run on one database in the suite and on the other in `make test-long`.

What the databases do differently is seen by the contract suite, on both, for every verb. What is left to see is what
stands before them: processes cost a hundred times as much.
"""

import re
import zlib
from collections import defaultdict
from collections.abc import Iterable
from pathlib import Path

import pytest

HERE = Path(__file__).parent
TAKING_TURNS = (
    "acceptance",
    "chaos",
    "dashboard",
    "promises",
    "remote",
    "serve",
    "traces",
    "transports",
    "verify",
    "webhooks",
    "worker",
)
# On both, always: the first thing that anybody runs, and the two ways to lose a worker.
ALWAYS_BOTH = ("worker/test_first_steps.py", "worker/test_killed_supervisor.py", "chaos/test_killed_processes.py")
_DIALECT = re.compile(r"(?<=[\[-])(sqlite|postgres(?:ql)?)(?=[\]-])")


def take_turns(items: Iterable[pytest.Item]) -> None:
    both: dict[str, list[pytest.Item]] = defaultdict(list)
    for item in items:
        place = item.path.relative_to(HERE).as_posix() if item.path.is_relative_to(HERE) else ""
        if place.startswith(TAKING_TURNS) and place not in ALWAYS_BOTH and _DIALECT.search(item.name):
            both[f"{place}::{_DIALECT.sub('', item.name)}"].append(item)
    for name, twins in both.items():
        if len(twins) == 2:
            later = sorted(twins, key=lambda item: item.name)[zlib.crc32(name.encode()) % 2]
            later.add_marker(pytest.mark.long)
