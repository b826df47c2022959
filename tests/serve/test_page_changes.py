"""`/live`: a page is told of changes as long as its visitor is signed in as the same."""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from typing import Any, cast

import pytest
from fastapi import Request

from holdfast.domain.errors import StoreUnavailable
from holdfast.domain.tokens import Scope
from holdfast.serve.api.live import Listener
from holdfast.serve.auth import Identity
from holdfast.serve.dashboard import live
from holdfast.serve.dashboard.session import SignInNeeded, Visitor
from holdfast.serve.problems import Refused
from tests.servers.waiting import DEADLINE_SECONDS

REQUEST = cast(Request, object())
ANN = Visitor(Identity("1", "ann", frozenset({Scope.VIEWER}), None), "word")
FEWER_QUEUES = Visitor(Identity("1", "ann", frozenset({Scope.VIEWER}), ("mail",)), "word")
STILL_HERE = b": still here\n\n"

Answer = Callable[[], Visitor]


def raising(error: Exception) -> Answer:
    def answer() -> Visitor:
        raise error

    return answer


@pytest.fixture(autouse=True)
def _at_once(monkeypatch: pytest.MonkeyPatch) -> None:
    """It is looked after every wait whether the visitor is still signed in, and no wait takes any time."""
    monkeypatch.setattr(live, "CHECK_SECONDS", 0.0)
    monkeypatch.setattr(live, "GAP_SECONDS", 0.0)
    monkeypatch.setattr(live, "KEEP_ALIVE_SECONDS", 0.0)


def chunks(monkeypatch: pytest.MonkeyPatch, *answers: Answer) -> list[bytes]:
    """What the page gets, until the stream ends or the server stops, which it does at the last of these answers."""
    left = iter(answers)

    async def story() -> list[bytes]:
        stopping, listener = asyncio.Event(), Listener(lambda _transition: True)

        async def visitor(_request: Request) -> Visitor:
            answer = next(left, None)
            if answer is None:
                stopping.set()
                return ANN
            listener.lose(1)
            return answer()

        monkeypatch.setattr(live, "visitor", visitor)
        return [chunk async for chunk in live._changes(REQUEST, ANN, listener, stopping)]

    found: list[Any] = asyncio.run(asyncio.wait_for(story(), DEADLINE_SECONDS))
    assert found.pop(0).startswith(b"retry: 2000\nevent: now\ndata: ")
    return found


def test_page_of_a_visitor_who_is_still_signed_in_goes_on(monkeypatch: pytest.MonkeyPatch) -> None:
    change = b"event: change\ndata: 1\n\n"
    found = chunks(monkeypatch, lambda: ANN, lambda: ANN)
    assert found == [STILL_HERE, change, change], "what is new is told by the next chunk"


@pytest.mark.parametrize(
    "over",
    [raising(SignInNeeded()), raising(Refused(403, "Not for this token", "no scope")), lambda: FEWER_QUEUES],
    ids=["signed out", "may not any more", "another identity"],
)
def test_page_of_a_visitor_who_is_not_signed_in_any_more_ends(monkeypatch: pytest.MonkeyPatch, over: Answer) -> None:
    assert chunks(monkeypatch, lambda: ANN, over, lambda: ANN) == [STILL_HERE]


@pytest.mark.parametrize("error", [StoreUnavailable("away"), Refused(503, "Busy", "ask again")], ids=["away", "busy"])
def test_page_goes_on_where_nobody_can_say_who_is_signed_in(monkeypatch: pytest.MonkeyPatch, error: Exception) -> None:
    assert len(chunks(monkeypatch, raising(error), raising(error))) == 3
