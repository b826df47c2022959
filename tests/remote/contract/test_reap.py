"""The tests of `tests/contract/test_reap.py` over HTTP."""

from tests.contract.test_reap import *  # noqa: F403
