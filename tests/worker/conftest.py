"""A folder with a module of tasks, a database, and real `holdfast worker` processes over both."""

from collections.abc import Iterator
from pathlib import Path

import pytest

from tests.chaos.conftest import postgres_template, postgres_url, sqlite_url, store_url
from tests.worker.site import Site

__all__ = ["postgres_template", "postgres_url", "site", "sqlite_url", "store_url"]


@pytest.fixture
def site(tmp_path: Path, store_url: str) -> Iterator[Site]:
    """On each kind of database; what the test leaves running is killed, and the ledger is verified."""
    with Site(tmp_path, store_url) as site:
        yield site


@pytest.fixture
def postgres_site(tmp_path: Path, postgres_url: str) -> Iterator[Site]:
    with Site(tmp_path, postgres_url) as site:
        yield site


@pytest.fixture
def sqlite_site(tmp_path: Path, sqlite_url: str) -> Iterator[Site]:
    with Site(tmp_path, sqlite_url) as site:
        yield site
