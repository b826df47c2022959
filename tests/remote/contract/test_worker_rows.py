"""The tests of `tests/contract/test_worker_rows.py` over HTTP."""

from tests.contract.test_worker_rows import *  # noqa: F403
