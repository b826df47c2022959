"""Control planes over each kind of database, as `tests/serve` has them, and sites for workers."""

from tests.chaos.conftest import postgres_template, postgres_url, sqlite_url, store_url
from tests.serve.conftest import admin, client, migrated_database, migrated_file, pooler, queue, served_database, worker
from tests.worker.conftest import postgres_site, sqlite_site

__all__ = [
    "admin",
    "client",
    "migrated_database",
    "migrated_file",
    "pooler",
    "postgres_site",
    "postgres_template",
    "postgres_url",
    "queue",
    "served_database",
    "sqlite_site",
    "sqlite_url",
    "store_url",
    "worker",
]
