"""A receiver for each test, and what workers need to deliver to it."""

from collections.abc import Iterator

import pytest

from holdfast.webhooks.delivering import SECRET_VARIABLE
from holdfast.webhooks.permission import ALLOW_VARIABLE
from tests.servers.waiting import DEADLINE_SECONDS
from tests.webhooks.receiver import Receiver

SECRET = "whsec_" + "c2VjcmV0LW9mLXRoaXJ0eS10d28tYnl0ZXMtb3Itc28="


@pytest.fixture(autouse=True)
def patient_lookups(monkeypatch: pytest.MonkeyPatch) -> None:
    """A slow lookup of a name is not taken for a failed one."""
    monkeypatch.setattr("holdfast.webhooks.permission.LOOKUP_SECONDS", DEADLINE_SECONDS)


@pytest.fixture
def receiver() -> Iterator[Receiver]:
    with Receiver() as receiver:
        yield receiver


@pytest.fixture
def configured(monkeypatch: pytest.MonkeyPatch) -> None:
    """This process may deliver to loopback."""
    monkeypatch.setenv(SECRET_VARIABLE, SECRET)
    monkeypatch.setenv(ALLOW_VARIABLE, "127.0.0.0/8")
