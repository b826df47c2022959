"""The tests of `tests/contract/test_operate.py` over HTTP."""

from tests.contract.test_operate import *  # noqa: F403
