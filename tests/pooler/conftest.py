"""A fresh database with Holdfast's tables, by way of pgbouncer in transaction mode, and past it."""

from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path

import pytest

from holdfast.stores.sql_store import SqlStore
from holdfast.wiring.sql import open_store
from tests.chaos.conftest import postgres_template, postgres_url
from tests.chaos.databases import query
from tests.servers.pgbouncer import PgbouncerEndpoint
from tests.worker.site import Site

__all__ = ["postgres_template", "postgres_url"]


@dataclass(frozen=True)
class Ways:
    """Two URLs of one database."""

    pooled: str
    direct: str

    def backends(self) -> int:
        """How many the pooler has open to this database."""
        [(count,)] = query(
            self.direct,
            "SELECT count(*) FROM pg_stat_activity WHERE datname = current_database() AND pid <> pg_backend_pid()"
            " AND backend_type = 'client backend'",
        )
        return int(count)


@pytest.fixture
def ways(postgres_url: str, pgbouncer: PgbouncerEndpoint) -> Ways:
    return Ways(pgbouncer.through(postgres_url), postgres_url)


@pytest.fixture
def store(ways: Ways) -> Iterator[SqlStore]:
    store = open_store(ways.pooled)
    yield store
    store.close()


@pytest.fixture
def site(tmp_path: Path, ways: Ways) -> Iterator[Site]:
    with Site(tmp_path, ways.pooled) as site:
        yield site
