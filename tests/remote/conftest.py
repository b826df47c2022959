"""Control planes and workers that reach their store through them."""

from collections.abc import Iterator
from pathlib import Path

import pytest

from tests.chaos.conftest import postgres_template, postgres_url, sqlite_url, store_url
from tests.contract.conftest import migrated_database, migrated_file, pooler
from tests.remote.fleet import Fleet
from tests.serve.conftest import _patient_clients, queue, served, served_database

__all__ = [
    "_patient_clients",
    "migrated_database",
    "migrated_file",
    "pooler",
    "postgres_template",
    "postgres_url",
    "queue",
    "served",
    "served_database",
    "sqlite_url",
    "store_url",
]


@pytest.fixture
def fleet(tmp_path: Path, store_url: str) -> Iterator[Fleet]:
    with Fleet(tmp_path, store_url) as fleet:
        yield fleet


@pytest.fixture
def sqlite_fleet(tmp_path: Path, sqlite_url: str) -> Iterator[Fleet]:
    with Fleet(tmp_path, sqlite_url) as fleet:
        yield fleet
