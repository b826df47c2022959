"""The tests of `tests/contract/test_stuck.py` over HTTP."""

from tests.contract.test_stuck import *  # noqa: F403
