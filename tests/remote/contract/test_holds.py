"""The tests of `tests/contract/test_holds.py` over HTTP."""

from tests.contract.test_holds import *  # noqa: F403
