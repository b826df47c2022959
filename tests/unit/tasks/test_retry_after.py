"""How long a Retry-After asks for, in whatever form it comes."""

import time
from datetime import timedelta
from email.utils import formatdate
from typing import Any

import pytest

from holdfast import RetryAfter, Snooze
from holdfast.tasks.retry_after import asked_for


class Response:
    def __init__(self, status: int, headers: Any) -> None:
        self.status_code = status
        self.headers = headers

    def __bool__(self) -> bool:
        return self.status_code < 400  # as requests has it


class Failure(Exception):
    def __init__(self, response: Any) -> None:
        self.response = response


@pytest.mark.parametrize(
    ("given", "seconds"),
    [
        (120, 120),
        ("120", 120),
        (" 120 ", 120),
        (1.5, 1.5),
        ("90s", 90),
        (timedelta(minutes=2), 120),
        (Response(429, {"retry-after": "120"}), 120),
        (Failure(Response(429, {"Retry-After": "120"})), 120),
        (Response(429, {}), 60),
        (None, 60),
        ("soon", 60),
        ("", 60),
        (True, 60),
        (float("nan"), 60),
        (object(), 60),
        (0, 1),
        (-5, 1),
        (float("inf"), 86_400),
        (10**400, 86_400),
        ("9" * 30, 60),
        ("Wed, 21 Oct 2015 07:28:00 GMT", 1),
        ("Wed, 99 Oct 2015 07:28:00 GMT", 60),
        ("Wed, 21 Oct 9999 07:28:00 GMT", 86_400),
    ],
)
def test_what_it_is_given_becomes_seconds(given: Any, seconds: float) -> None:
    said = RetryAfter(given)
    assert isinstance(said, Snooze)
    assert said.delay_seconds == seconds


def test_a_date_counts_from_the_clock_that_wrote_it() -> None:
    in_an_hour = formatdate(time.time() + 3600, usegmt=True)
    assert 600 < RetryAfter(in_an_hour).delay_seconds <= 3600  # the date has whole seconds, and the test takes time
    skewed = {"Date": "Wed, 21 Oct 2015 07:28:00 GMT", "Retry-After": "Wed, 21 Oct 2015 07:30:00 GMT"}
    assert RetryAfter(Response(503, skewed)).delay_seconds == 120


def test_only_an_answer_that_says_when_to_come_back_counts() -> None:
    header = {"Retry-After": "5"}
    assert asked_for(Failure(Response(429, header))) == 5
    assert asked_for(Failure(Response(503, header))) == 5
    assert asked_for(Failure(Response(500, header))) is None
    assert asked_for(Failure(Response(429, {}))) is None
    assert asked_for(Failure(None)) is None
    assert asked_for(KeyboardInterrupt()) is None

    class Hostile(Exception):
        @property
        def response(self) -> Any:
            raise RuntimeError("no")

    assert asked_for(Hostile()) is None
