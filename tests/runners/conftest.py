from collections.abc import Iterator
from pathlib import Path

import pytest

from tests.runners.driver import Start, starting


@pytest.fixture
def start(tmp_path: Path) -> Iterator[Start]:
    """`start(source, kind=…, slots=…)` writes tasks.py and starts a runner on it."""
    with starting(tmp_path) as starter:
        yield starter
