"""The tests of `tests/contract/test_claim.py` over HTTP."""

from tests.contract.test_claim import *  # noqa: F403
