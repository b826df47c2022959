"""The audit log for people: backwards, page by page, with a word on how far back it looked."""

from __future__ import annotations

from collections.abc import Iterator
from datetime import UTC, datetime

import pytest

from holdfast.domain.errors import InvalidInput
from holdfast.domain.feed import AuditFilter, AuditPage, FeedPlace, Transition
from holdfast.domain.lifecycle import State
from holdfast.domain.retention import Group, Kept
from holdfast.stores.sql_store import SqlStore
from holdfast.stores.verbs import auditing
from tests.contract.ground import Clock
from tests.contract.steps import claim_this, enqueue, enqueue_many, job_in

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


@pytest.mark.parametrize("few", [False, True], ids=["at once", "a few rows at a time"])
def test_every_filter_finds_what_it_describes(
    store: SqlStore, log: list[Transition], few: bool, monkeypatch: pytest.MonkeyPatch
) -> None:
    if few:
        monkeypatch.setattr(auditing, "MOST_IN_WINDOW", 2)
        monkeypatch.setattr(auditing, "MOST_LOOKED", 2)
    job_id = log[-1].job_id
    for name in HOSTILE:
        assert read(store, AuditFilter(task=name)) == [item for item in log if item.task == name]
        assert read(store, AuditFilter(queues=(name, "x"))) == [item for item in log if item.queue == name]
        assert read(store, AuditFilter(worker=name)) == [item for item in log if item.worker == name]
    assert read(store, AuditFilter(("claimed", "pruned"))) == [i for i in log if i.event in ("claimed", "pruned")]
    assert read(store, AuditFilter(job_id=job_id), 1) == [item for item in log if item.job_id == job_id]
    both = AuditFilter(("enqueued",), task=HOSTILE[0])
    assert read(store, both) == [i for i in log if (i.event, i.task) == ("enqueued", HOSTILE[0])]
    assert read(store, AuditFilter(queues=())) == []


def test_a_page_that_found_too_little_says_how_far_back_it_looked(
    store: SqlStore, log: list[Transition], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(auditing, "MOST_LOOKED", 1)
    page = store.audit(AuditFilter(worker="nobody"))
    assert (page.items, page.more) == ((), True)
    assert page.next == FeedPlace(page.looked_back_to)
    assert log[-1].at < page.looked_back_to <= log[0].at
    *_, last = pages(store, AuditFilter(worker="nobody"), 50)
    assert last.next is None
    assert last.looked_back_to <= log[-1].at


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
def test_what_cannot_be_is_refused(store: SqlStore, wanted: AuditFilter) -> None:
    with pytest.raises(InvalidInput):
        store.audit(wanted)


def test_a_place_that_is_none_is_refused(store: SqlStore) -> None:
    with pytest.raises(InvalidInput):
        store.audit(AuditFilter(), FeedPlace(datetime(2026, 1, 1)))  # noqa: DTZ001 - that is what is refused
    assert store.audit(AuditFilter(), FeedPlace(datetime(1, 1, 1, tzinfo=UTC))).items == ()
