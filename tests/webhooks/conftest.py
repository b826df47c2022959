"""A receiver for each test, and what workers need to deliver to it."""

from collections.abc import Iterator

import pytest

from holdfast.webhooks.delivering import SECRET_VARIABLE
from holdfast.webhooks.permission import ALLOW_VARIABLE
from tests.webhooks.receiver import Receiver

SECRET = "whsec_" + "c2VjcmV0LW9mLXRoaXJ0eS10d28tYnl0ZXMtb3Itc28="


@pytest.fixture
def receiver() -> Iterator[Receiver]:
    with Receiver() as receiver:
        yield receiver


@pytest.fixture
def configured(monkeypatch: pytest.MonkeyPatch) -> None:
    """This process may deliver to loopback."""
    monkeypatch.setenv(SECRET_VARIABLE, SECRET)
    monkeypatch.setenv(ALLOW_VARIABLE, "127.0.0.0/8")
