"""The tests of `tests/contract/test_unique.py` over HTTP."""

from tests.contract.test_unique import *  # noqa: F403
