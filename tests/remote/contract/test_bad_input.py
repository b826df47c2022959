"""The tests of `tests/contract/test_bad_input.py` over HTTP."""

from tests.contract.test_bad_input import *  # noqa: F403
