"""The fixture `holdfast_jobs`. pytest loads this in every project that has Holdfast installed: it must be light."""

from __future__ import annotations

from collections.abc import Callable
from contextlib import AbstractContextManager
from pathlib import Path
from typing import TYPE_CHECKING

import pytest

if TYPE_CHECKING:
    from holdfast.tasks.app import App
    from holdfast.tasks.testing import Jobs


@pytest.fixture
def holdfast_jobs(tmp_path: Path) -> Callable[[App], AbstractContextManager[Jobs]]:
    """`with holdfast_jobs(app) as jobs:` the app is on an empty store; ask `jobs` what it enqueued, or run it."""
    from holdfast.tasks.testing import fresh_store

    return lambda app: fresh_store(app, tmp_path)
