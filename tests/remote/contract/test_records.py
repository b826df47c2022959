"""The tests of `tests/contract/test_records.py` over HTTP."""

from tests.contract.test_records import *  # noqa: F403
