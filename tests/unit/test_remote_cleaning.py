"""Reports are checked before they are sent over HTTP."""

import math
from typing import Any

import pytest

from holdfast.domain.errors import InvalidInput
from holdfast.domain.outcome import Report, Snoozed
from holdfast.remote.cleaning import clean_report

JOB = "01890a5d-ac96-774b-bcce-b302099a8057"


def snoozed(delay: Any) -> Report:
    return Report(JOB, 1, "token", Snoozed(delay, "la\ud800ter"))


@pytest.mark.parametrize("delay", [math.nan, math.inf, -math.inf, "30", None])
def test_snooze_whose_delay_is_no_number_is_refused_by_name(delay: Any) -> None:
    with pytest.raises(InvalidInput) as raised:
        clean_report(snoozed(delay))
    assert (raised.value.field, raised.value.rule) == ("delay", f"must be a number of seconds, got {delay!r}")


@pytest.mark.parametrize("delay", [0, 2.5])
def test_snooze_keeps_its_delay_and_gets_a_reason_that_can_be_sent(delay: float) -> None:
    assert clean_report(snoozed(delay)).outcome == Snoozed(delay, "la?ter")
