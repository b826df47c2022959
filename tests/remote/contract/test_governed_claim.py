"""The tests of `tests/contract/test_governed_claim.py` over HTTP."""

from tests.contract.test_governed_claim import *  # noqa: F403
