from tests.chaos.conftest import clock, postgres_template, postgres_url, sqlite_url, store, store_url
from tests.worker.conftest import site

__all__ = ["clock", "postgres_template", "postgres_url", "site", "sqlite_url", "store", "store_url"]
