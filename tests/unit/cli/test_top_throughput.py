"""The meter counts each transition once, also one that turns up late, and says when it cannot keep up."""

from datetime import UTC, datetime, timedelta

from holdfast.cli.top.throughput import MOST_PAGES, PAGE, Meter
from holdfast.domain.feed import FeedPage, FeedPlace, Transition

NOON = datetime(2026, 3, 1, 12, tzinfo=UTC)


class Log:
    """An audit log in memory that is read as a store's is."""

    def __init__(self) -> None:
        self.now = NOON
        self.items: list[Transition] = []
        self.asked = 0

    def add(self, event: str, seconds_ago: float = 0.5, count: int = 1) -> None:
        state = {"enqueued": "pending", "claimed": "running"}.get(event, event)
        at = self.now - timedelta(seconds=seconds_ago)
        for number in range(len(self.items), len(self.items) + count):
            job_id = f"00000000-0000-7000-8000-{number:012}"
            self.items.append(Transition(job_id, 1, at, event, None, state, 0, None, "t", "q"))
        self.items.sort(key=lambda item: item.place)

    def feed(self, after: FeedPlace | None, limit: int = PAGE) -> FeedPage:
        self.asked += 1
        found = [] if after is None else [item for item in self.items if item.place > after]
        return FeedPage(self.now, tuple(found[:limit]), len(found) > limit)


def test_what_happened_in_the_last_minute_is_known_from_the_first_look() -> None:
    log = Log()
    log.add("enqueued", 59, 3)
    log.add("enqueued", 90, 7)
    log.add("succeeded", 10, 2)
    log.add("failed", 5)
    log.add("claimed", 5, 9)

    seen = Meter().look(log)
    assert (sum(seen.enqueued), sum(seen.done), sum(seen.failed)) == (3, 3, 1)
    assert (len(seen.done), seen.at_least) == (60, False)
    assert seen.per_second(seen.done) == 3 / seen.seconds


def test_what_commits_late_is_counted_once_and_what_was_seen_is_not_counted_again() -> None:
    log, meter = Log(), Meter()
    log.add("succeeded", 0.5)
    assert sum(meter.look(log).done) == 1
    log.add("succeeded", 0.6)  # dated before what was seen
    log.now += timedelta(seconds=0.2)
    assert sum(meter.look(log).done) == 2
    assert sum(meter.look(log).done) == 2
    log.now += timedelta(seconds=70)
    assert sum(meter.look(log).done) == 0


def test_a_store_with_more_in_a_minute_than_one_look_reads_is_measured_over_less() -> None:
    log = Log()
    log.add("succeeded", 30, MOST_PAGES * PAGE + 1)
    log.add("succeeded", 5, 100)

    seen = Meter().look(log)
    assert (sum(seen.done), seen.at_least, round(seen.seconds)) == (100, False, 10)
    assert log.asked <= 1 + 2 * MOST_PAGES


def test_who_cannot_keep_up_says_at_least_until_a_minute_has_passed() -> None:
    log, meter = Log(), Meter()
    meter.look(log)
    log.now += timedelta(seconds=1)
    log.add("succeeded", 0.5, MOST_PAGES * PAGE + 50)

    cut = meter.look(log)
    assert (sum(cut.done), cut.at_least) == (MOST_PAGES * PAGE, True)
    log.now += timedelta(seconds=2)
    assert meter.look(log).at_least
    log.now += timedelta(seconds=61)
    assert not meter.look(log).at_least


def test_a_rush_that_no_look_can_read_is_at_least_so_much() -> None:
    log = Log()
    log.add("succeeded", 0.5, MOST_PAGES * PAGE + 1)

    seen = Meter().look(log)
    assert (sum(seen.done), seen.at_least) == (MOST_PAGES * PAGE, True)
