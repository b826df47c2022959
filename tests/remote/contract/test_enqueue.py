"""The tests of `tests/contract/test_enqueue.py` over HTTP."""

from tests.contract.test_enqueue import *  # noqa: F403
