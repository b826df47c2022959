"""A queue that cannot be swept is reported once, until it could be swept again."""

from __future__ import annotations

import pytest

from holdfast.domain.errors import InvalidInput
from holdfast.transports.redis_streams.link import RedisRefused
from holdfast.transports.redis_streams.troubles import Troubles

WRONG_TYPE = "WRONGTYPE Operation against a key holding the wrong kind of value"


def refused() -> int:
    raise RedisRefused(WRONG_TYPE)


def test_queue_in_trouble_is_reported_once_and_again_after_a_success(caplog: pytest.LogCaptureFixture) -> None:
    troubles = Troubles()
    assert [troubles.guarded("mail", refused) for _ in range(3)] == [None, None, None]
    assert [record.getMessage() for record in caplog.records] == [
        f"Redis: the messages of queue 'mail' cannot be seen to: {WRONG_TYPE}. Their jobs are found without messages."
    ]
    assert troubles.guarded("mail", lambda: 7) == 7
    assert troubles.guarded("mail", refused) is None
    assert len(caplog.records) == 2


def test_queues_in_trouble_are_reported_each_for_itself(caplog: pytest.LogCaptureFixture) -> None:
    troubles = Troubles()

    def invalid() -> int:
        raise InvalidInput("queue", "must not be empty")

    for queue, act in (("mail", refused), ("", invalid), ("mail", refused), ("", invalid)):
        assert troubles.guarded(queue, act) is None
    assert ["'mail'" in record.getMessage() for record in caplog.records] == [True, False]
    assert caplog.records[1].getMessage().startswith("Redis: the names of queues cannot be seen to: queue:")


def test_error_of_another_kind_is_not_kept_back() -> None:
    def fail() -> int:
        raise ZeroDivisionError

    with pytest.raises(ZeroDivisionError):
        Troubles().guarded("mail", fail)
