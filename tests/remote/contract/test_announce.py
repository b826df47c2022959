"""The tests of `tests/contract/test_announce.py` over HTTP."""

from tests.contract.test_announce import *  # noqa: F403
