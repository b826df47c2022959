"""A message is let go after the outcome has committed, and not before: who dies in between has lost nothing."""

import uuid
from collections.abc import Iterator, Sequence

import pytest

from holdfast.domain.answers import Settled
from holdfast.domain.errors import StoreUnavailable
from holdfast.domain.outcome import Report
from holdfast.throwaway.valkey import ValkeyEndpoint
from tests.chaos.conftest import sqlite_url
from tests.transports.streaming import Fleet, report

__all__ = ["sqlite_url"]


@pytest.fixture
def fleet(sqlite_url: str, valkey_server: ValkeyEndpoint) -> Iterator[Fleet]:
    with Fleet(sqlite_url, valkey_server.url, uuid.uuid4().hex) as fleet:
        yield fleet


def test_while_an_outcome_is_being_committed_its_message_is_in_its_workers_hands(
    fleet: Fleet, monkeypatch: pytest.MonkeyPatch
) -> None:
    fleet.enqueue(1)
    [claimed] = fleet.claim()
    commit = fleet.plain.settle
    held: list[int] = []

    def seen_from_within(reports: Sequence[Report]) -> list[Settled]:
        fleet.flush()
        held.append(fleet.pending())
        return commit(reports)

    monkeypatch.setattr(fleet.plain, "settle", seen_from_within)
    fleet.finish([claimed])
    assert (held, fleet.pending()) == ([1], 0)


def test_a_report_that_the_store_did_not_hear_leaves_its_message(fleet: Fleet, monkeypatch: pytest.MonkeyPatch) -> None:
    fleet.enqueue(1)
    [claimed] = fleet.claim()

    def away(_reports: Sequence[Report]) -> list[Settled]:
        raise StoreUnavailable("away")

    with monkeypatch.context() as patch:
        patch.setattr(fleet.plain, "settle", away)
        with pytest.raises(StoreUnavailable):
            fleet.store.settle([report(claimed)])
    fleet.flush()
    assert fleet.pending() == 1
    fleet.finish([claimed])
    assert (fleet.length(), fleet.pending()) == (0, 0)
