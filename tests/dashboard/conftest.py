"""A browser and a control plane, with its duties on, for each module."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from contextlib import AbstractContextManager, ExitStack
from functools import partial

import pytest
from playwright.sync_api import Browser

from tests.contract.conftest import migrated_database, migrated_file, pooler
from tests.dashboard.browser import Watched, chromium, visiting
from tests.serve.conftest import queue, served_database
from tests.serve.grounds import Served, serving

__all__ = ["migrated_database", "migrated_file", "pooler", "queue", "served_database"]

Visit = Callable[..., Watched]


@pytest.fixture(scope="module")  # no longer: while it is there, the main thread has a running event loop
def browser() -> Iterator[Browser]:
    with chromium() as found:
        yield found


@pytest.fixture(scope="module")
def served(served_database: str) -> Iterator[Served]:
    with serving(served_database, duties=True) as served:
        yield served


@pytest.fixture
def visit(browser: Browser, served: Served) -> Iterator[Visit]:
    """`visit("viewer")`: somebody signed in with a token of that scope, and watched to the end of the test."""
    with ExitStack() as visits:

        def begin(scope: str = "admin", *, token: str | None = None, **options: object) -> Watched:
            given = token if token is not None else served.tokens.get(scope)
            manager: AbstractContextManager[Watched] = visiting(browser, served.url, given, **options)
            return visits.enter_context(manager)

        yield partial(begin)
