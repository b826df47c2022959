"""The tests of `tests/contract/test_queries.py` over HTTP."""

from tests.contract.test_queries import *  # noqa: F403
