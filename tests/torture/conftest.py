"""A healthy run, made once, and a copy of it for every test that does something to it."""

from collections.abc import Iterator
from pathlib import Path

import pytest

from tests.chaos.conftest import postgres_template, postgres_url
from tests.torture.planted import Healthy, Run, make_healthy

__all__ = ["postgres_template", "postgres_url"]


@pytest.fixture(scope="session")
def healthy(tmp_path_factory: pytest.TempPathFactory) -> Healthy:
    return make_healthy(tmp_path_factory.mktemp("healthy") / "run")


@pytest.fixture
def run(healthy: Healthy, tmp_path: Path) -> Iterator[Run]:
    with healthy.copied(tmp_path / "run") as copy:
        yield copy
