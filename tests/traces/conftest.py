"""A collector for each test, and the sites and fleets of their neighbours."""

from collections.abc import Iterator

import pytest

from tests.remote.conftest import sqlite_fleet
from tests.rq.conftest import station
from tests.traces.collector import Collector, collecting
from tests.worker.conftest import postgres_template, postgres_url, site, sqlite_site, sqlite_url, store_url

__all__ = [
    "postgres_template",
    "postgres_url",
    "site",
    "sqlite_fleet",
    "sqlite_site",
    "sqlite_url",
    "station",
    "store_url",
]


@pytest.fixture
def collector() -> Iterator[Collector]:
    with collecting() as collector:
        yield collector
