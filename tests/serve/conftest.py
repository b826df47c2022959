"""Control planes over each kind of database. One server serves all tests of a module: each test has its own queue."""

from __future__ import annotations

import shutil
import uuid
from collections.abc import Iterator
from pathlib import Path

import httpx
import pytest

from tests.contract.conftest import make_empty, migrated_database, migrated_file, pooler
from tests.contract.ground import DIALECTS
from tests.serve.grounds import Served, serving
from tests.servers.waiting import DEADLINE_SECONDS

__all__ = ["migrated_database", "migrated_file", "pooler"]


@pytest.fixture(autouse=True)
def _patient_clients(monkeypatch: pytest.MonkeyPatch) -> None:
    """An `App` and a command on a control plane wait ten seconds by default, too short for a busy machine."""
    monkeypatch.setattr("holdfast.remote.opening.LONGEST_TIMEOUT_SECONDS", DEADLINE_SECONDS)


@pytest.fixture(scope="module", params=DIALECTS)
def served_database(request: pytest.FixtureRequest, tmp_path_factory: pytest.TempPathFactory) -> str:
    """The URL of an empty database of this module's."""
    if request.param == "sqlite":
        file: Path = request.getfixturevalue("migrated_file")
        path = tmp_path_factory.mktemp("served") / "holdfast.db"
        shutil.copy(file, path)
        return f"sqlite:///{path}"
    url: str = request.getfixturevalue("migrated_database")
    make_empty(url)
    return url


@pytest.fixture(scope="module")
def served(served_database: str) -> Iterator[Served]:
    with serving(served_database) as served:
        yield served


@pytest.fixture
def queue() -> str:
    """A name that no other test uses."""
    return f"queue-{uuid.uuid4().hex[:12]}"


@pytest.fixture
def worker(served: Served) -> Iterator[httpx.Client]:
    with served.client("worker") as client:
        yield client


@pytest.fixture
def client(served: Served) -> Iterator[httpx.Client]:
    with served.client("client") as client:
        yield client


@pytest.fixture
def admin(served: Served) -> Iterator[httpx.Client]:
    with served.client("admin") as client:
        yield client
