"""The worker's own clock decides what may still run."""

from holdfast.domain.job import Claimed
from holdfast.domain.manifest import OnLostLease, TaskInfo
from holdfast.domain.timing import choose
from holdfast.worker.leases import Held, LeaseBook


def claimed(number: int = 1, lease: float = 60.0, **changes: object) -> Claimed:
    values: dict[str, object] = {
        "job_id": f"01a00000-0000-7000-8000-{number:012d}",
        "task": "x",
        "task_version": None,
        "queue": "default",
        "source": None,
        "payload_json": "{}",
        "attempt": 1,
        "failures": 0,
        "crashes": 0,
        "max_attempts": 3,
        "max_crashes": 3,
        "timeout_seconds": None,
        "lease_seconds": lease,
        "traceparent": None,
        "lease_token": "secret",
    }
    return Claimed(**{**values, **changes})  # type: ignore[arg-type]


PLAIN = TaskInfo("x")


def book_of(*jobs: Claimed, info: TaskInfo = PLAIN) -> tuple[LeaseBook, list[Held]]:
    book = LeaseBook(choose(60.0))
    return book, [book.add(job, info, 1000.0) for job in jobs]


def test_heartbeats_are_due_after_a_third_of_the_lease() -> None:
    book, [held] = book_of(claimed())
    assert book.due_beats(1019.9) == []
    assert book.due_beats(1020.0) == [held]
    assert book.next_beat == 1040.0


def test_one_statement_takes_along_what_would_be_due_soon() -> None:
    book, [first] = book_of(claimed(1))
    second = book.add(claimed(2), TaskInfo("x"), 1008.0)
    third = book.add(claimed(3), TaskInfo("x"), 1012.0)
    assert book.due_beats(1020.0) == [first, second]
    assert third.beat_at == 1032.0


def test_a_lease_counts_from_when_its_heartbeat_was_sent() -> None:
    book, [held] = book_of(claimed())
    book.confirm(held, 1020.0)
    assert held.deadline == 1080.0
    book.confirm(held, 1010.0)  # an answer that comes late changes nothing
    assert held.deadline == 1080.0


def test_nothing_is_checked_before_its_time_and_a_confirmed_lease_is_left_alone() -> None:
    book, [held] = book_of(claimed())
    assert book.next_check == held.lease_warning_at == 1056.0
    book.confirm(held, 1050.0)
    assert book.due_checks(1056.0) == []
    book.plan_checks()
    assert book.next_check == 1106.0


def test_a_task_that_may_go_on_without_a_lease_is_not_watched() -> None:
    book, _ = book_of(claimed(), info=TaskInfo("x", on_lost_lease=OnLostLease.CONTINUE))
    assert book.next_check == float("inf")


def test_a_time_limit_is_checked_in_time() -> None:
    book, [held] = book_of(claimed())
    held.limit_at = 1003.0
    book.changed(held)
    assert book.due_checks(1002.9) == []
    assert book.due_checks(1003.0) == [held]


def test_only_an_innocent_job_with_nothing_to_lose_may_be_queued_behind_another() -> None:
    _, held = book_of(
        claimed(1),
        claimed(2, crashes=1),
        claimed(3, failures=2),
        claimed(4, max_attempts=1),
        claimed(5, max_crashes=1),
        claimed(6, source="shop"),
    )
    assert [item.prefetchable for item in held] == [True, False, False, False, False, False]


def test_a_heartbeat_names_its_worker_for_the_record_of_refusals() -> None:
    book = LeaseBook(choose(60.0), "host-1-abc")
    assert book.add(claimed(), PLAIN, 1000.0).beat().worker == "host-1-abc"
