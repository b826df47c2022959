"""Imported by every Python that starts with this folder on its path, before anything else: makes its clock jump.

Nothing of Holdfast is imported here. An error must not leave a process with the right clock that is thought to have a
wrong one, so it ends the process: Python itself would only print it.
"""

import os
import sys
from importlib.util import module_from_spec, spec_from_file_location
from pathlib import Path
from types import ModuleType

HERE = Path(__file__).parent


def load(name: str, path: Path) -> ModuleType:
    spec = spec_from_file_location(name, path)
    if spec is None or spec.loader is None:
        raise SystemExit(f"cannot load {path}")
    module = module_from_spec(spec)
    spec.loader.exec_module(module)
    return module


def pass_on() -> None:
    """To the module of this name that would have been imported without us, if there is one."""
    for folder in sys.path:
        found = Path(folder, "sitecustomize.py")
        if found.is_file() and found.parent.resolve() != HERE.resolve():
            load("sitecustomize", found)
            return


if clock := os.environ.get("HOLDFAST_TORTURE_CLOCK"):
    try:
        shifting = load("holdfast_torture_shifting", HERE.parent / "shifting.py")
        shifting.shift_by(clock)
    except Exception as error:
        raise SystemExit(f"the clock {clock} cannot be used: {error}") from error
pass_on()
