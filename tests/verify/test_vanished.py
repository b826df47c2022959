"""A job that something speaks of has a row or a history, unless its history was retired: what is left of the evidence
tells of what was made to vanish, and what retention removed is not held against anybody."""

import threading
from collections.abc import Callable, Iterator
from datetime import UTC, datetime, timedelta

from sqlalchemy import Connection, Engine, text

from holdfast.domain.history import HistoryRule, Reference, Violation, judge_reference
from holdfast.domain.retention import Watermark
from holdfast.maintenance.verify import Verdict, verify
from holdfast.stores.histories import Histories
from holdfast.stores.references import References
from holdfast.stores.schema import artifacts, schedule_ticks
from tests.verify.ledger import CANCELLED, FAILED, PENDING, PRUNED, RETIRED, SUCCEEDED, Ledger, guards_off, job_id

EARLY = datetime(2020, 1, 1, tzinfo=UTC)
LATE = datetime(2090, 1, 1, tzinfo=UTC)


def check(engine: Engine, page_rows: int = 2000) -> Verdict:
    return verify(Histories(engine), references=References(engine, page_rows))


def tick(connection: Connection, number: int, at: datetime = LATE, planned: int = 0) -> None:
    values = {"schedule": "hourly", "planned_at": EARLY + timedelta(hours=planned), "fired_at": at, "outcome": "fired"}
    connection.execute(schedule_ticks.insert().values(**values, job_id=job_id(number)))


def artifact(connection: Connection, number: int, at: datetime = LATE) -> None:
    values = {"job_id": job_id(number), "attempt": 1, "name": "a", "media_type": "text/plain", "bytes": 1, "sha256": ""}
    connection.execute(artifacts.insert().values(**values, saved_at=at))


def make_vanish(engine: Engine, number: int) -> None:
    """Row and history, as the owner of the database can who switches the guards off."""
    with guards_off(engine) as connection:
        for statement in ("DELETE FROM holdfast_jobs WHERE id = :id", "DELETE FROM holdfast_events WHERE job_id = :id"):
            assert connection.execute(text(statement), {"id": job_id(number)}).rowcount > 0


def test_a_job_that_vanished_is_named_by_what_still_speaks_of_it(healthy: Engine) -> None:
    with healthy.begin() as connection:
        tick(connection, SUCCEEDED)
        artifact(connection, CANCELLED)
        speaks_of_others(connection)
    assert check(healthy).ok
    vanished = (SUCCEEDED, CANCELLED)
    for number in vanished:
        make_vanish(healthy, number)
    found = [(violation.job_id, violation.rule) for violation in check(healthy).violations]
    assert found == [(job_id(number), HistoryRule.VANISHED) for number in vanished]


def speaks_of_others(connection: Connection) -> None:
    """Of a job that is there, of one that was pruned, and of none."""
    tick(connection, PENDING, planned=1)
    tick(connection, PRUNED, planned=2)
    connection.execute(
        schedule_ticks.insert().values(
            schedule="hourly", planned_at=EARLY + timedelta(hours=3), fired_at=LATE, outcome="skipped"
        )
    )


def test_what_was_retired_is_not_reported_unless_something_younger_speaks_of_it(healthy: Engine) -> None:
    with healthy.begin() as connection:
        for speaks in (tick, artifact):
            speaks(connection, RETIRED, EARLY)
    verdict = check(healthy)
    assert verdict.ok, verdict.violations
    assert verdict.retired is not None
    assert (verdict.retired.jobs, verdict.retired.events) == (1, 3)
    with healthy.begin() as connection:
        tick(connection, RETIRED, LATE, planned=1)  # the job was there when all that was retired had been pruned
    [violation] = check(healthy).violations
    assert (violation.job_id, violation.rule) == (job_id(RETIRED), HistoryRule.VANISHED)


def test_a_job_is_named_once_however_much_speaks_of_it(healthy: Engine) -> None:
    with healthy.begin() as connection:
        for hour in range(5):
            tick(connection, FAILED, planned=hour)
    make_vanish(healthy, FAILED)
    assert [violation.job_id for violation in check(healthy).violations] == [job_id(FAILED)]


def test_the_size_of_a_page_changes_nothing(healthy: Engine) -> None:
    with healthy.begin() as connection:
        for hour in range(7):
            tick(connection, SUCCEEDED if hour % 2 else CANCELLED, planned=hour)
        artifact(connection, FAILED)
    for number in (SUCCEEDED, FAILED):
        make_vanish(healthy, number)
    expected = list(References(healthy))
    assert [reference.job_id for reference in expected] == [job_id(n) for n in (SUCCEEDED,) * 3 + (FAILED,)]
    for page_rows in (1, 2, 3, 7):
        assert list(References(healthy, page_rows)) == expected


class Retiring(References):
    """Between the page that shows a job gone and the question how far histories were retired, there is time."""

    def __init__(self, engine: Engine, before: Callable[[], None]) -> None:
        super().__init__(engine)
        self._before = before

    def __iter__(self) -> Iterator[Reference]:
        self._before()
        yield from super().__iter__()


def test_a_history_that_is_retired_while_verify_reads_is_not_reported(healthy: Engine) -> None:
    """After the histories were read, and before what speaks of them is."""
    with healthy.begin() as connection:
        tick(connection, CANCELLED, at=datetime.now(UTC))

    def retire() -> None:
        with healthy.begin() as connection:
            Ledger(connection).prune(CANCELLED)
            Ledger(connection).retire(CANCELLED)

    verdict = verify(Histories(healthy), references=Retiring(healthy, retire))
    assert verdict.ok, verdict.violations
    assert verdict.retired is not None
    assert verdict.retired.jobs == 2


def _now() -> datetime:
    """As SQLite's clock says it, to the millisecond: a tick is not younger than the end of its job."""
    now = datetime.now(UTC)
    return now.replace(microsecond=now.microsecond // 1000 * 1000)


def test_verify_is_clean_while_jobs_come_and_are_retired(empty: Engine) -> None:
    """Each with a tick that speaks of it, as a schedule would leave it."""
    over = threading.Event()
    lives: list[int] = []

    def live() -> None:
        while not over.is_set():
            number = len(lives) + 1
            with empty.connect() as connection:  # every statement by itself
                ledger = Ledger(connection)
                ledger.enqueue(number)
                tick(connection, number, at=_now(), planned=number)
                ledger.end(number, "cancelled", "cancelled")
                ledger.prune(number)
                ledger.retire(number)
            lives.append(number)

    thread = threading.Thread(target=live)
    thread.start()
    found: list[Violation] = []
    try:
        while thread.is_alive() and len(lives) < 40:
            found += check(empty, page_rows=5).violations
    finally:
        over.set()
        thread.join()
    assert len(lives) >= 40
    assert found == []


def test_only_a_reference_that_is_younger_than_the_watermark_is_a_violation() -> None:
    reference = Reference("a", "2026-01-02T00:00:00.000000Z", "a tick of schedule hourly")
    assert judge_reference(reference, "2026-01-02T00:00:00.000000Z") is None
    assert judge_reference(reference, "2026-01-03T00:00:00.000000Z") is None
    for through in (None, "2026-01-01T00:00:00.000000Z"):
        violation = judge_reference(reference, through)
        assert violation is not None
        assert violation.rule is HistoryRule.VANISHED


def test_the_watermark_is_part_of_the_verdict() -> None:
    class Nothing:
        def __iter__(self) -> Iterator[Reference]:
            return iter(())

        def retired(self) -> Watermark | None:
            return Watermark(LATE, 7, 28)

    assert verify((), references=Nothing()).retired == Watermark(LATE, 7, 28)
