from tests.worker.conftest import (
    postgres_site,
    postgres_template,
    postgres_url,
    site,
    sqlite_site,
    sqlite_url,
    store_url,
)

__all__ = ["postgres_site", "postgres_template", "postgres_url", "site", "sqlite_site", "sqlite_url", "store_url"]
