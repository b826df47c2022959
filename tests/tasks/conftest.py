"""An app on a file without jobs, for each test."""

import shutil
from collections.abc import Iterator
from pathlib import Path

import pytest

from holdfast import App


@pytest.fixture
def app(tmp_path: Path, template_file: Path) -> Iterator[App]:
    app = App(f"sqlite:///{shutil.copy(template_file, tmp_path / 'jobs.db')}", lease=60)
    yield app
    app.close()
