"""An app on an empty file, for each test."""

from collections.abc import Iterator
from pathlib import Path

import pytest

from holdfast import App


@pytest.fixture
def app(tmp_path: Path) -> Iterator[App]:
    app = App(f"sqlite:///{tmp_path}/jobs.db", lease=60)
    yield app
    app.close()
