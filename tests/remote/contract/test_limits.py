"""The tests of `tests/contract/test_limits.py` over HTTP."""

from tests.contract.test_limits import *  # noqa: F403
