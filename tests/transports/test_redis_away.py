"""Where Redis does not answer at all, jobs go by the database alone."""

import uuid

from tests.chaos.conftest import sqlite_url
from tests.transports.streaming import Fleet, report

__all__ = ["sqlite_url"]

NOBODY_LISTENS = "redis://127.0.0.1:1/0"


def test_a_job_is_enqueued_claimed_and_finished_without_redis(sqlite_url: str) -> None:
    with Fleet(sqlite_url, NOBODY_LISTENS, uuid.uuid4().hex) as fleet:
        [job_id] = fleet.enqueue(1)
        [claimed] = fleet.claim()
        assert (claimed.job_id, claimed.message_id) == (job_id, None)
        assert fleet.store.settle([report(claimed)])[0].ok
        assert fleet.plain.counts() == {"succeeded": 1}
