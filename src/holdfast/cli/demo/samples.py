"""Where the sample tasks are: `examples/` of the clone, which is also what the wheel is built from.

They are programs of users and no part of the package: nothing imports them but the demo, and only while it plays.
"""

from __future__ import annotations

import os
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

from holdfast.domain.errors import ConfigurationError

PACKED = Path(__file__).parent / "packed"  # where pyproject.toml lays them in the wheel
CLONE = Path(__file__).parents[4]


def home() -> Path:
    """The folder that holds `examples`."""
    for folder in (PACKED, CLONE):
        if (folder / "examples" / "price_watch" / "tasks.py").is_file():
            return folder
    raise ConfigurationError(
        f"the demo runs the tasks of examples/, which are neither in {PACKED} nor in {CLONE}: install Holdfast from its"
        " wheel, or run the demo from a clone"
    )


def python_path() -> str:
    """For the workers: price_watch is a package of `examples`, model_runs a folder that is a project by itself."""
    found = home()
    theirs = [Path(entry).absolute() for entry in os.environ.get("PYTHONPATH", "").split(os.pathsep) if entry]
    return os.pathsep.join(map(str, [found, found / "examples" / "model_runs", *theirs]))


@contextmanager
def importable() -> Iterator[None]:
    """For this process, which needs the marketplaces alone."""
    folder = str(home())
    sys.path.insert(0, folder)
    try:
        yield
    finally:
        sys.path.remove(folder)
