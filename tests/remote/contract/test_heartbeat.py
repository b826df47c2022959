"""The tests of `tests/contract/test_heartbeat.py` over HTTP."""

from tests.contract.test_heartbeat import *  # noqa: F403
