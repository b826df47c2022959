"""The tests of `tests/contract/test_artifacts.py` over HTTP."""

from tests.contract.test_artifacts import *  # noqa: F403
