"""The tests of `tests/contract/test_settle.py` over HTTP."""

from tests.contract.test_settle import *  # noqa: F403
