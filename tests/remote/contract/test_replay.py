"""The tests of `tests/contract/test_replay.py` over HTTP."""

from tests.contract.test_replay import *  # noqa: F403
