"""The tests of `tests/contract/test_sources.py` over HTTP."""

from tests.contract.test_sources import *  # noqa: F403
