"""What can be said of a source, and what is told of it."""

from collections.abc import Iterator
from datetime import UTC, datetime, timedelta
from typing import Any

import pytest

from holdfast.domain.durations import LONGEST_SECONDS
from holdfast.domain.errors import InvalidInput, NotFound
from holdfast.domain.outcome import Snoozed, Succeeded
from holdfast.domain.sources import EARLIEST, LATEST, Breaker, End, Entry, Leaving, SourceDeclaration, per_minute
from holdfast.domain.views import SourceEvent
from holdfast.stores.postgres import open_postgres
from holdfast.stores.schema import SOURCE_RULES
from holdfast.stores.sql_store import SqlStore
from holdfast.stores.verbs import sources as verbs
from tests.contract.ground import ByHand, Clock, on_postgres, on_sqlite
from tests.contract.steps import HOPELESS, beat, claim_ids, enqueue_many, postgres_later, settle_well, start


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
@postgres_later
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
@postgres_later
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


@pytest.fixture
def unguarded(by_hand: ByHand) -> Iterator[ByHand]:
    """A hand that may write nonsense into a source, as it could before the database refused that."""
    if not by_hand.is_postgres:
        for name, table in by_hand("SELECT name, tbl_name FROM sqlite_master WHERE type = 'trigger'"):
            if table == "holdfast_sources":
                by_hand(f"DROP TRIGGER {name}")
        yield by_hand
        return
    constraints = [f"holdfast_sources_{name}" for name, _rule in SOURCE_RULES]
    by_hand("ALTER TABLE holdfast_sources " + ", ".join(f"DROP CONSTRAINT {name}" for name in constraints))
    yield by_hand
    rules = ", ".join(f"ADD CONSTRAINT holdfast_sources_{name} CHECK ({rule})" for name, rule in SOURCE_RULES)
    by_hand("DELETE FROM holdfast_sources")
    by_hand(f"ALTER TABLE holdfast_sources {rules}")


NONSENSE = (
    "breaker_only = '\"Timeout\"', declared = '[1]', paused_by = 'me'",
    "breaker_threshold = 0, failure_streak = -3",
    "breaker_pause_seconds = 1e15, breaker_threshold = 1",
    "breaker_pause_seconds = -5, breaker_threshold = 1",
)
NONSENSE_OF_POSTGRES = (
    "paused_until = 'infinity', last_success_at = 'infinity'",
    "paused_until = '-infinity', last_failure_at = '20000-01-01'",
    "breaker_pause_seconds = 'NaN', breaker_threshold = 1",
    "breaker_pause_seconds = 'Infinity', breaker_threshold = 1",
    "rate_limit_per_minute = 'NaN', bucket_level = 'NaN', bucket_at = 'infinity'",
)
NONSENSE_OF_SQLITE = (
    "paused_until = datetime('now', '+1 hour'), last_success_at = CURRENT_TIMESTAMP, failure_streak = 1",
    "paused_until = 'tomorrow', last_failure_at = ''",
    "breaker_threshold = 'few', failure_streak = 'many', breaker_pause_seconds = 'long'",
    "rate_limit_per_minute = '100/m', max_concurrent = 'many', burst = 'x', bucket_at = 'x'",
)


def test_no_outcome_is_lost_to_nonsense_in_a_source_and_it_can_be_repaired(store: SqlStore, unguarded: ByHand) -> None:
    for nonsense in (*NONSENSE, *(NONSENSE_OF_POSTGRES if unguarded.is_postgres else NONSENSE_OF_SQLITE)):
        unguarded("DELETE FROM holdfast_sources")
        jobs = [start(store, source="shop") for _ in range(3)]
        inside = start(store)
        store.set_source("shop")
        unguarded(f"UPDATE holdfast_sources SET {nonsense}")
        settle_well(store, jobs[0], Succeeded())
        settle_well(store, jobs[1], HOPELESS)
        settle_well(store, jobs[2], Snoozed(60, "429", throttled=True))
        assert store.cancel([jobs[2].job_id])
        store.enter_source(beat(inside), Entry("shop", 1))
        store.leave_source(beat(inside), Leaving("shop", 1, End.FAILED, "x"))
        settle_well(store, inside, Succeeded())
        assert store.sources() == [store.source("shop")]
        store.resume_source("shop")
        repaired = store.set_source("shop", max_concurrent=9, rate="60/m")
        assert (repaired.paused_until, repaired.max_concurrent, repaired.breaker) == (None, 9, Breaker.CLOSED), nonsense
        assert 1 <= repaired.breaker_threshold <= 5
        assert 0 < repaired.breaker_pause_seconds <= LONGEST_SECONDS
        assert repaired.level is not None


def test_what_was_repaired_is_on_record(store: SqlStore, unguarded: ByHand) -> None:
    store.set_source("shop")
    unguarded("UPDATE holdfast_sources SET breaker_threshold = 0")
    store.set_source("shop", burst=2)
    assert (events(store)[-1].detail or {})["repaired"] == ["breaker_threshold"]
    assert unguarded("SELECT breaker_threshold FROM holdfast_sources") == [(1,)]


@on_sqlite
def test_times_in_another_form_are_stored_in_ours_by_the_next_change(store: SqlStore, unguarded: ByHand) -> None:
    store.set_source("shop")
    unguarded(
        "UPDATE holdfast_sources SET paused_until = 'tomorrow', last_success_at = '2020-01-01 10:00:00',"
        " last_failure_at = '2020-01-02T03:04:05.000000Z'"
    )
    store.set_source("shop", burst=2)
    assert (events(store)[-1].detail or {})["repaired"] == ["last_success_at", "paused_until"]
    stored = unguarded("SELECT paused_until, last_success_at, last_failure_at FROM holdfast_sources")
    assert stored == [(None, "2020-01-01T10:00:00.000000Z", "2020-01-02T03:04:05.000000Z")]


def test_a_pause_of_what_is_not_there_makes_no_source(store: SqlStore) -> None:
    with pytest.raises(NotFound, match="shoop"):
        store.set_source("shoop", paused_for="10m")
    assert store.sources() == []


@pytest.mark.parametrize("moment", [datetime.max.replace(tzinfo=UTC), datetime.min.replace(tzinfo=UTC)])
def test_a_moment_at_the_end_of_time_is_refused(store: SqlStore, moment: datetime) -> None:
    with pytest.raises(InvalidInput, match=r"^paused_until:"):
        store.set_source("shop", paused_until=moment)


@on_postgres
def test_the_latest_moment_can_be_read_in_every_time_zone(store: SqlStore, direct_url: str) -> None:
    for zone in ("Pacific/Kiritimati", "Etc/GMT%2B12"):
        database = open_postgres(f"{direct_url}?options=-c%20timezone%3D{zone}")
        far = SqlStore(database)
        for moment in (LATEST, EARLIEST):
            assert far.set_source("shop", paused_until=moment).paused_until == moment
        far.close()
    assert store.source("shop").paused_until == EARLIEST
