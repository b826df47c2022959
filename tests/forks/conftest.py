"""Fixtures for programs that fork: databases of either kind, control planes and workers."""

from tests.chaos.conftest import postgres_template, postgres_url, sqlite_url, store_url
from tests.remote.conftest import sqlite_fleet
from tests.worker.conftest import postgres_site, site, sqlite_site

__all__ = [
    "postgres_site",
    "postgres_template",
    "postgres_url",
    "site",
    "sqlite_fleet",
    "sqlite_site",
    "sqlite_url",
    "store_url",
]
