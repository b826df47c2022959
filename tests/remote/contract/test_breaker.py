"""The tests of `tests/contract/test_breaker.py` over HTTP."""

from tests.contract.test_breaker import *  # noqa: F403
