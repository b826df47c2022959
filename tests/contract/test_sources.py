"""What can be said of a source, and what is told of it."""

from datetime import timedelta
from typing import Any

import pytest

from holdfast.domain.errors import InvalidInput, NotFound
from holdfast.domain.outcome import Succeeded
from holdfast.domain.sources import Breaker, SourceDeclaration, per_minute
from holdfast.domain.views import SourceEvent
from holdfast.stores.sql_store import SqlStore
from holdfast.stores.verbs import sources as verbs
from tests.contract.ground import ByHand, Clock
from tests.contract.steps import HOPELESS, claim_ids, enqueue_many, settle_well, start


def events(store: SqlStore) -> list[SourceEvent]:
    """The oldest first."""
    return list(reversed(store.source_events("shop").items))


def declare(store: SqlStore, **limits: Any) -> None:
    store.announce_sources([SourceDeclaration("shop", limits)])


@pytest.mark.parametrize(
    ("rate", "a_minute"),
    [
        ("100/m", 100),
        ("5/s", 300),
        ("90 / hour", 1.5),
        ("1440/d", 1),
        ("0.5 per second", 30),
        ("3 a minute", 3),
        (7, 7),
    ],
)
def test_a_rate_can_be_said_in_words(store: SqlStore, rate: Any, a_minute: float) -> None:
    assert per_minute(rate) == pytest.approx(a_minute)
    assert store.set_source("shop", rate=rate).rate_limit_per_minute == pytest.approx(a_minute)


def test_every_limit_can_be_changed_and_read_back(store: SqlStore, clock: Clock) -> None:
    until = clock.now() + timedelta(minutes=5)
    changed = store.set_source(
        "shop",
        enabled=False,
        rate="10/m",
        burst=4,
        max_concurrent=2,
        paused_until=until,
        breaker_threshold=3,
        breaker_pause_seconds="2m",
        breaker_only=["B", "A", "A"],
        breaker_ignores=("C",),
        breaker_counts_permanent=False,
    )
    assert store.source("shop") == changed == store.sources()[0]
    assert (changed.enabled, changed.rate_limit_per_minute, changed.burst, changed.max_concurrent) == (False, 10, 4, 2)
    assert (changed.paused_until, changed.paused_by, changed.breaker) == (until, "operator", Breaker.CLOSED)
    assert (changed.breaker_threshold, changed.breaker_pause_seconds) == (3, 120.0)
    assert (changed.breaker_only, changed.breaker_ignores, changed.breaker_counts_permanent) == (
        ("A", "B"),
        ("C",),
        False,
    )
    back = store.set_source("shop", rate=None, breaker_only=None, breaker_ignores=None, paused_until=None)
    assert (back.rate_limit_per_minute, back.breaker_only, back.breaker_ignores) == (None, None, ())
    assert (back.paused_until, back.paused_by) == (None, None)


@pytest.mark.parametrize(
    ("field", "value"),
    [
        ("enabled", 1),
        ("rate", "fast"),
        ("rate", "5/fortnight"),
        ("rate", "0/s"),
        ("rate", True),
        ("rate", []),
        ("rate_limit_per_minute", "100/m"),
        ("rate_limit_per_minute", float("nan")),
        ("burst", 0),
        ("burst", None),
        ("max_concurrent", -1),
        ("paused_until", "soon"),
        ("paused_for", "-1s"),
        ("breaker_threshold", 0),
        ("breaker_pause_seconds", 0),
        ("breaker_pause_seconds", "soon"),
        ("breaker_only", "Timeout"),
        ("breaker_only", [""]),
        ("breaker_ignores", [3]),
        ("breaker_counts_permanent", None),
        ("max_concurent", 1),
    ],
)
def test_a_wrong_limit_names_the_field_and_changes_nothing(store: SqlStore, field: str, value: Any) -> None:
    good = {"max_concurrent": 1, "breaker_threshold": 2}
    with pytest.raises(InvalidInput, match=rf"^{field}:"):
        store.set_source("shop", **{**good, field: value})
    assert store.sources() == []


def test_two_ways_to_say_one_thing_are_one_too_many(store: SqlStore, clock: Clock) -> None:
    with pytest.raises(InvalidInput, match=r"^rate:"):
        store.set_source("shop", rate="1/s", rate_limit_per_minute=60)
    with pytest.raises(InvalidInput, match=r"^paused_for:"):
        store.set_source("shop", paused_for="1m", paused_until=clock.now())
    assert store.sources() == []


def test_a_change_is_one_event_with_the_old_and_the_new(store: SqlStore, clock: Clock) -> None:
    store.set_source("shop", max_concurrent=2, burst=1)
    clock.move(1)
    store.set_source("shop", max_concurrent=3, burst=1, rate="60/m")
    created, changed = events(store)
    assert (created.event, created.detail) == ("limits_changed", {"max_concurrent": 2, "created": True})
    assert changed.detail == {
        "max_concurrent": 3,
        "rate_limit_per_minute": 60.0,
        "before": {"max_concurrent": 2, "rate_limit_per_minute": None},
    }


def test_what_changes_nothing_is_no_event(store: SqlStore, by_hand: ByHand) -> None:
    limits: dict[str, Any] = {"max_concurrent": 2, "rate": "1/h", "breaker_only": ["A"], "breaker_ignores": []}
    store.set_source("shop", **limits)
    store.resume_source("shop")
    before = by_hand.everything()
    store.set_source("shop", **limits)
    store.set_source("shop")
    store.resume_source("shop")
    assert by_hand.everything() == before


def test_a_pause_and_its_end_are_on_record(store: SqlStore, clock: Clock) -> None:
    store.set_source("shop")
    clock.move(1)
    assert store.set_source("shop", paused_for="10m").paused_until == clock.now() + timedelta(minutes=10)
    enqueue_many(store, 1, source="shop")
    assert claim_ids(store) == []
    clock.move(1)
    resumed = store.resume_source("shop")
    assert (resumed.paused_until, resumed.paused_by) == (None, None)
    assert len(claim_ids(store)) == 1
    assert [event.event for event in events(store)] == ["limits_changed", "paused", "resumed"]
    assert (events(store)[2].detail or {})["before"]["paused_by"] == "operator"


def test_resuming_closes_the_breaker(store: SqlStore, clock: Clock) -> None:
    store.set_source("shop", breaker_threshold=1)
    settle_well(store, start(store, source="shop"), HOPELESS)
    assert store.source("shop").breaker is Breaker.OPEN
    clock.move(1)
    source = store.resume_source("shop")
    assert (source.breaker, source.failure_streak, source.paused_until) == (Breaker.CLOSED, 0, None)
    assert (events(store)[-1].detail or {})["before"]["failure_streak"] == 1


def test_a_source_that_is_not_there_is_not_found(store: SqlStore) -> None:
    for ask in (store.source, store.resume_source):
        with pytest.raises(NotFound, match="holdfast sources set shop"):
            ask("shop")
    assert store.source_events("shop").items == ()


def test_what_was_saved_up_was_saved_up_at_the_old_rate(store: SqlStore, clock: Clock) -> None:
    store.set_source("shop", rate="60/m", burst=10)
    enqueue_many(store, 20, source="shop")
    assert len(claim_ids(store)) == 1
    clock.move(2)
    assert store.set_source("shop", rate="6000/m").level == pytest.approx(2.0)
    assert store.set_source("shop", burst=1).level == pytest.approx(1.0)


# What code declares


def test_code_declares_and_an_operator_s_word_stays(store: SqlStore, clock: Clock) -> None:
    declare(store, rate="60/m", max_concurrent=2)
    assert (store.source("shop").rate_limit_per_minute, store.source("shop").max_concurrent) == (60.0, 2)
    clock.move(1)
    store.set_source("shop", max_concurrent=9)
    clock.move(1)
    declare(store, rate="60/m", max_concurrent=2)
    assert store.source("shop").max_concurrent == 9, "code says what it said before"
    declare(store, rate="120/m", max_concurrent=2)
    source = store.source("shop")
    assert (source.rate_limit_per_minute, source.max_concurrent) == (120.0, 9), "it says something else of the rate"
    clock.move(1)
    declare(store, rate="120/m", max_concurrent=3)
    assert store.source("shop").max_concurrent == 3
    assert [event.event for event in events(store)] == ["declared", "limits_changed", "declared", "declared"]


def test_what_code_says_no_more_is_as_if_it_had_never_been_said(store: SqlStore) -> None:
    declare(store, rate="60/m", breaker_ignores=["A"])
    declare(store, burst=5)
    source = store.source("shop")
    assert (source.rate_limit_per_minute, source.breaker_ignores, source.burst) == (None, (), 5)


def test_declaring_again_writes_nothing(store: SqlStore, by_hand: ByHand) -> None:
    declare(store, rate="1/s", breaker_only=["B", "A"], breaker_pause_seconds="1m")
    before = by_hand.everything()
    declare(store, breaker_only=["A", "B"], rate=60, breaker_pause_seconds=60)
    store.announce_sources([])
    assert by_hand.everything() == before


def test_a_declaration_is_of_a_source_that_an_operator_has_made_too(store: SqlStore) -> None:
    store.set_source("shop", max_concurrent=4, burst=2)
    declare(store, burst=3)
    assert (store.source("shop").max_concurrent, store.source("shop").burst) == (4, 3)


@pytest.mark.parametrize("pause", ["paused_until", "paused_for"])
def test_code_pauses_no_source_and_a_wrong_declaration_changes_none(store: SqlStore, pause: str) -> None:
    good = SourceDeclaration("bank", {"burst": 2})
    with pytest.raises(InvalidInput, match=rf"^{pause}:"):
        store.announce_sources([good, SourceDeclaration("shop", {pause: 60})])
    assert store.sources() == []


# How it is


def test_the_view_tells_how_a_source_is(store: SqlStore, clock: Clock, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(verbs, "MOST_COUNTED", 4)
    store.set_source("shop", rate="60/m", burst=4, max_concurrent=2)
    store.set_source("bank")
    clock.move(60)
    enqueue_many(store, 5, source="shop")
    enqueue_many(store, 3, source="shop", delay=60)
    settle_well(store, store.claim("ann", 1)[0], Succeeded())
    [claimed] = store.claim("ann", 1)
    bank, shop = store.sources()
    assert (bank.name, bank.level, bank.in_use, bank.waiting) == ("bank", None, 0, 0)
    assert (shop.level, shop.in_use, shop.waiting, shop.waiting_at_least) == (2.0, 1, 3, False)
    assert shop.last_success_at == clock.now()
    settle_well(store, claimed, Succeeded())
    clock.move(60)
    shop = store.source("shop")
    assert (shop.level, shop.in_use, shop.waiting, shop.waiting_at_least) == (4.0, 0, 4, True)


def test_events_come_page_by_page(store: SqlStore, clock: Clock) -> None:
    for burst in range(2, 9):
        store.set_source("shop", burst=burst)
        clock.move(1)
    store.set_source("bank", burst=3)
    assert [event.source for event in store.source_events(limit=2).items] == ["bank", "shop"]
    seen: list[int] = []
    after = None
    while True:
        page = store.source_events("shop", 3, after)
        seen += [(event.detail or {})["burst"] for event in page.items]
        after = page.after
        if after is None:
            break
    assert seen == [8, 7, 6, 5, 4, 3, 2]
    with pytest.raises(InvalidInput, match=r"^limit:"):
        store.source_events("shop", 0)
    with pytest.raises(InvalidInput, match=r"^after:"):
        store.source_events("shop", after="yesterday")


def test_what_an_operator_has_typed_by_hand_stops_nobody(store: SqlStore, by_hand: ByHand) -> None:
    store.set_source("shop", breaker_threshold=1)
    by_hand("""UPDATE holdfast_sources SET breaker_only = '"Timeout"', declared = '[1]', paused_by = 'me'""")
    source = store.source("shop")
    assert (source.breaker_only, source.paused_by) == (None, None)
    settle_well(store, start(store, source="shop"), HOPELESS)
    declare(store, burst=2)
    assert (store.source("shop").breaker, store.source("shop").burst) == (Breaker.OPEN, 2)
