"""A message in Redis is a hint from anybody: whatever it says, no job is run, changed or lost by it, and no log is
steered."""

from __future__ import annotations

import logging
import re
import uuid
from collections.abc import Iterator

import pytest

from holdfast.rq import execute_run
from holdfast.throwaway.valkey import ValkeyEndpoint
from tests.security.corpus import HOSTILE
from tests.transports.streaming import Fleet

CONTROLS = re.compile("[\x00-\x1f\x7f-\x9f\u202a-\u202e\u2066-\u2069]")


@pytest.fixture
def fleet(sqlite_url: str, valkey_server: ValkeyEndpoint) -> Iterator[Fleet]:
    with Fleet(sqlite_url, valkey_server.url, uuid.uuid4().hex) as fleet:
        yield fleet


def test_hostile_messages_in_a_stream_lead_to_no_job_and_hold_up_none(fleet: Fleet) -> None:
    for text in HOSTILE.values():
        raw = text.encode("utf-8", "surrogatepass")
        fleet.redis.xadd(fleet.names.stream("default"), {b"job_id": raw, b"enqueue_id": raw})
        fleet.redis.xadd(fleet.names.stream("default"), {raw: raw})
    [job_id] = fleet.enqueue(1)
    found = [claimed for _ in range(40) for claimed in fleet.claim()]
    assert [claimed.job_id for claimed in found] == [job_id]
    fleet.finish(found)
    assert (fleet.length(), fleet.pending()) == (0, 0)
    fleet.assert_each_once(1)


def test_hostile_messages_of_rq_run_nothing_and_are_shown_and_not_obeyed(caplog: pytest.LogCaptureFixture) -> None:
    caplog.set_level(logging.DEBUG)
    for text in HOSTILE.values():
        assert execute_run(text)["ran"] is False
    written = [record.getMessage() for record in caplog.records]
    assert len(written) >= len(HOSTILE)
    assert not [line for line in written if CONTROLS.search(line)]
    assert max(map(len, written)) < 1_000
