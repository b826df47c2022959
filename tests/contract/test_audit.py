"""The audit log for people: backwards, page by page, with a word on how far back it looked."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import replace
from datetime import UTC, datetime

import pytest

from holdfast.domain.errors import InvalidInput
from holdfast.domain.feed import AuditFilter, AuditPage, FeedPlace, Transition
from holdfast.domain.lifecycle import State
from holdfast.domain.retention import Group, Kept
from holdfast.stores.schema.audit import SELDOM
from holdfast.stores.sql_store import SqlStore
from holdfast.stores.verbs import auditing
from tests.contract.ground import Clock
from tests.contract.steps import claim_this, enqueue, enqueue_many, job_in, postgres_later

HOSTILE = ("'; DROP TABLE holdfast_events; --", "<script>alert(1)</script>", '%s :since {x} \\ "ü"')

EVERYTHING = AuditFilter()


def pages(store: SqlStore, wanted: AuditFilter, limit: int) -> Iterator[AuditPage]:
    place: FeedPlace | None = None
    while True:
        page = store.audit(wanted, place, limit)
        yield page
        if not page.more:
            return
        place = page.next


def read(store: SqlStore, wanted: AuditFilter = EVERYTHING, limit: int = 3) -> list[Transition]:
    return [item for page in pages(store, wanted, limit) for item in page.items]


@pytest.fixture
def log(store: SqlStore, clock: Clock) -> list[Transition]:
    """Everything, the newest first: bursts at one moment, and gaps of a second and of weeks."""
    start = FeedPlace(clock.now())
    for number, state in enumerate(State):
        job_in(store, state, task=HOSTILE[number % 3], queue=HOSTILE[(number + 1) % 3])
        clock.move((0, 1, 86_400 * 20)[number % 3])
    enqueue_many(store, 7)
    claim_this(store, enqueue(store), worker=HOSTILE[0])
    store.prune(Group(Kept.JOBS, HOSTILE[1], State.SUCCEEDED, 1.0), 10)
    return list(store.feed(start).items)[::-1]


def test_the_log_backwards_is_the_feed_backwards(store: SqlStore, log: list[Transition]) -> None:
    assert len(log) > 20
    for limit in (1, 7, 1000):
        assert read(store, limit=limit) == log


SPARING = {"MOST_IN_WINDOW": 2, "FIRST_LOOKED": 2, "MOST_LOOKED": 3, "MOST_JOBS": 0}


@pytest.mark.parametrize("few", [False, True], ids=["at once", "a few rows at a time"])
def test_every_filter_finds_what_it_describes(
    store: SqlStore, log: list[Transition], few: bool, monkeypatch: pytest.MonkeyPatch
) -> None:
    for name, number in SPARING.items() if few else ():
        monkeypatch.setattr(auditing, name, number)
    job_id = log[-1].job_id
    for name in HOSTILE:
        assert read(store, AuditFilter(task=name)) == [item for item in log if item.task == name]
        assert read(store, AuditFilter(queues=(name, "x"))) == [item for item in log if item.queue == name]
        assert read(store, AuditFilter(worker=name)) == [item for item in log if item.worker == name]
    assert read(store, AuditFilter(("claimed", "pruned"))) == [i for i in log if i.event in ("claimed", "pruned")]
    assert read(store, AuditFilter(job_id=job_id), 1) == [item for item in log if item.job_id == job_id]
    for events in (("enqueued",), ("failed",), ("retry_scheduled", "failed", "cancelled"), ("failed", "claimed")):
        like = [item for item in log if item.event in events]
        assert read(store, AuditFilter(events)) == like
        for name in HOSTILE:
            assert read(store, AuditFilter(events, task=name)) == [item for item in like if item.task == name]
            assert read(store, AuditFilter(events, (name,))) == [item for item in like if item.queue == name]
            assert read(store, AuditFilter(events, worker=name)) == [item for item in like if item.worker == name]
    assert read(store, AuditFilter(queues=())) == []


def test_a_page_that_found_too_little_says_how_far_back_it_looked(
    store: SqlStore, log: list[Transition], monkeypatch: pytest.MonkeyPatch
) -> None:
    for name, number in SPARING.items():
        monkeypatch.setattr(auditing, name, number)
    for wanted in (AuditFilter(worker="nobody"), AuditFilter(tuple(SELDOM), worker="nobody")):
        page = store.audit(wanted)
        assert (page.items, page.more) == ((), True)
        assert page.looked_back_to is not None
        assert log[-1].at < page.looked_back_to <= log[0].at
        *_, last = pages(store, wanted, 50)
        assert (last.items, last.next, last.looked_back_to) == ((), None, None)


def test_what_seldom_happens_is_found_however_much_else_has_happened_since(
    store: SqlStore, monkeypatch: pytest.MonkeyPatch
) -> None:
    for name, number in {**SPARING, "MOST_LOOKED": 6}.items():
        monkeypatch.setattr(auditing, name, number)
    failed = [job_in(store, State.FAILED) for _ in range(2)]
    cancelled = job_in(store, State.CANCELLED)
    enqueue_many(store, 20)
    page = store.audit(AuditFilter(("failed", "cancelled")), limit=3)
    assert [item.job_id for item in page.items] == [cancelled, *failed[::-1]]
    assert page.looked_back_to is None


@pytest.mark.parametrize("wanted", [AuditFilter(task="rare"), AuditFilter(queues=("remote",))])
def test_what_has_few_jobs_is_found_in_their_histories(
    store: SqlStore, clock: Clock, wanted: AuditFilter, monkeypatch: pytest.MonkeyPatch
) -> None:
    for name, number in {**SPARING, "MOST_JOBS": 5}.items():
        monkeypatch.setattr(auditing, name, number)
    start = FeedPlace(clock.now())
    gone = job_in(store, State.SUCCEEDED, task="rare", queue="remote")
    store.prune(Group(Kept.JOBS, "remote", State.SUCCEEDED, 0.0), 10)
    for state in State:
        if state is not State.SUCCEEDED:
            job_in(store, state, task="rare", queue="remote")
            clock.move(1)
    rare = [item for item in store.feed(start).items if item.job_id != gone][::-1]
    for number in range(10):
        enqueue(store, queue=f"other {number}")
        clock.move(30)
    page = store.audit(wanted, limit=4)
    assert list(page.items) == rare[:4]
    assert page.pruned_since is not None
    assert page.pruned_since > rare[0].at
    assert [item for item in read(store, wanted) if item.job_id != gone] == rare
    assert read(store, replace(wanted, events=("claimed",))) == [item for item in rare if item.event == "claimed"]


def test_a_full_page_looked_back_to_its_last_item(store: SqlStore, log: list[Transition]) -> None:
    page = store.audit(AuditFilter(), limit=4)
    assert (page.more, page.next, page.looked_back_to) == (True, log[3].place, log[3].at)


def test_an_empty_log_has_nothing(store: SqlStore) -> None:
    page = store.audit(AuditFilter())
    assert (page.items, page.more, page.next) == ((), False, None)


@pytest.mark.parametrize(
    "wanted",
    [AuditFilter(("exploded",)), AuditFilter(task=""), AuditFilter(worker="\x00"), AuditFilter(job_id="x")],
)
@postgres_later
def test_what_cannot_be_is_refused(store: SqlStore, wanted: AuditFilter) -> None:
    with pytest.raises(InvalidInput):
        store.audit(wanted)


def test_a_place_that_is_none_is_refused(store: SqlStore) -> None:
    with pytest.raises(InvalidInput):
        store.audit(AuditFilter(), FeedPlace(datetime(2026, 1, 1)))  # noqa: DTZ001 - that is what is refused
    assert store.audit(AuditFilter(), FeedPlace(datetime(1, 1, 1, tzinfo=UTC))).items == ()
