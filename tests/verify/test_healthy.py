"""A database that nobody damaged is found to be so, however it is read."""

import threading
from collections.abc import Callable
from itertools import pairwise
from typing import Any

import pytest
from sqlalchemy import Engine, Pool, QueuePool, create_engine, event, text

from holdfast.domain.history import EventFacts, History, RowFacts
from holdfast.domain.lifecycle import Event, State
from holdfast.maintenance.verify import Progress, Stopped, Verdict, verify
from holdfast.stores.histories import Histories
from tests.verify.ledger import ALL, FAILED, RETIRED, count, guards_off, job_id

Read = list[tuple[str, RowFacts | None, list[EventFacts]]]


def read_all(engine: Engine, page_events: int) -> Read:
    return [(history.job_id, history.row, list(history.events)) for history in Histories(engine, page_events)]


def test_a_healthy_database_is_ok(healthy: Engine) -> None:
    verdict = verify(Histories(healthy))
    events = count(healthy, "holdfast_events")
    assert verdict == Verdict(ok=True, jobs=len(ALL) - 1, events=events, violations=())


def test_the_healthy_database_has_every_state_and_event(healthy: Engine) -> None:
    histories = read_all(healthy, 2000)
    assert {row.state for _, row, _ in histories if row} == {str(state) for state in State}
    assert {event.event for *_, events in histories for event in events} == {str(event) for event in Event}
    assert job_id(RETIRED) not in [each for each, *_ in histories]


def test_an_empty_database_is_ok(empty: Engine) -> None:
    assert verify(Histories(empty)) == Verdict(ok=True, jobs=0, events=0, violations=())


@pytest.mark.parametrize("page_events", [1, 2, 3, 5, 8, 13])
def test_the_size_of_a_page_changes_nothing(healthy: Engine, page_events: int) -> None:
    expected = read_all(healthy, 2000)
    ids = [each for each, *_ in expected]
    assert all(first < second for first, second in pairwise(ids))
    assert read_all(healthy, page_events) == expected


@pytest.mark.parametrize("page_events", [1, 2, 3, 8])
def test_rows_and_histories_without_each_other_are_all_read(healthy: Engine, page_events: int) -> None:
    with guards_off(healthy) as connection:
        connection.execute(text("DELETE FROM holdfast_events WHERE job_id <= :id"), {"id": job_id(7)})
        connection.execute(text("DELETE FROM holdfast_jobs WHERE id > :id"), {"id": job_id(14)})
    expected = read_all(healthy, 2000)
    assert [each for each, *_ in expected] == [job_id(number) for number in ALL if number != RETIRED]
    assert read_all(healthy, page_events) == expected


def test_no_connection_is_held_while_a_page_is_checked(healthy: Engine) -> None:
    pool: Pool = healthy.pool
    assert isinstance(pool, QueuePool)
    held = [pool.checkedout() for _ in Histories(healthy, page_events=10)]
    assert held == [0] * (len(ALL) - 1)


def test_a_reader_that_is_given_up_leaves_nothing_open(healthy: Engine) -> None:
    pool: Pool = healthy.pool
    assert isinstance(pool, QueuePool)
    reading = iter(Histories(healthy, page_events=1))
    long_history = next(reading)
    assert pool.checkedout() == 1  # a history longer than a page is streamed out of its snapshot
    del long_history, reading
    assert pool.checkedout() == 0


def sqlite_that_begins_immediate(url: str) -> Engine:
    engine = create_engine(url, connect_args={"isolation_level": None})
    event.listen(engine, "begin", lambda connection: connection.exec_driver_sql("BEGIN IMMEDIATE"))
    return engine


ENGINES: dict[str, Callable[[str], Engine]] = {
    "default": create_engine,
    "autocommit": lambda url: create_engine(url, isolation_level="AUTOCOMMIT"),
    "serializable": lambda url: create_engine(url, isolation_level="SERIALIZABLE"),
}


@pytest.mark.parametrize("kind", ENGINES)
def test_any_engine_will_do_and_is_left_as_it_was(healthy_url: str, kind: str) -> None:
    check_and_go_on(ENGINES[kind](healthy_url))


@pytest.mark.parametrize("healthy_url", ["sqlite"], indirect=True)
def test_an_engine_that_begins_immediate_will_do(healthy_url: str) -> None:
    check_and_go_on(sqlite_that_begins_immediate(healthy_url))


def check_and_go_on(engine: Engine) -> None:
    assert verify(Histories(engine, page_events=7)).ok
    with engine.begin() as connection:
        connection.execute(text("UPDATE holdfast_jobs SET state = 'cancelled' WHERE id = :id"), {"id": job_id(1)})
    assert verify(Histories(engine)).ok
    engine.dispose()


def test_json_that_the_database_cannot_turn_into_text_is_no_damage(healthy: Engine) -> None:
    detail = r'{"error": "\u0000 and \ud800", "reason": "permanent"}'
    with guards_off(healthy) as connection:
        changed = "UPDATE holdfast_events SET detail = :detail WHERE job_id = :id AND event = 'failed'"
        connection.execute(text(changed), {"detail": detail, "id": job_id(FAILED)})
    assert verify(Histories(healthy)).ok


def test_a_page_is_read_in_order_of_the_index(healthy: Engine) -> None:
    """A plan that sorts would read the whole table for every page."""
    plans: list[str] = []

    def explain(connection: Any, _cursor: Any, statement: str, parameters: Any, _context: Any, _many: bool) -> None:
        if statement.startswith("SELECT"):
            prefix = "EXPLAIN " if connection.dialect.name == "postgresql" else "EXPLAIN QUERY PLAN "
            rows = connection.connection.cursor().execute(prefix + statement, parameters)
            plans.append("\n".join(str(row) for row in rows))

    event.listen(healthy, "before_cursor_execute", explain)
    assert verify(Histories(healthy, page_events=3)).ok
    assert plans
    assert not [plan for plan in plans if "Sort" in plan or "TEMP B-TREE" in plan]


def test_a_verdict_counts_what_it_does_not_list() -> None:
    row = RowFacts("x", "pending", 1, "enqueued", 0, 0, 0, None, None, False, False, "")
    verdict = verify((History(str(number), row, ()) for number in range(30)), max_violations=10)
    assert not verdict.ok
    assert (len(verdict.violations), verdict.unlisted, verdict.jobs) == (10, 20, 30)


def test_progress_is_told_as_it_goes_and_at_the_end(healthy: Engine, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("holdfast.maintenance.verify.PROGRESS_EVERY", 20)
    told: list[Progress] = []
    histories = Histories(healthy)
    total = histories.count()
    verdict = verify(histories, told.append, total=total)
    assert len(told) > 3
    assert told == sorted(told, key=lambda progress: (progress.jobs, progress.done))
    assert told[-1] == Progress(verdict.jobs, verdict.events, total)
    assert verdict.events == total


def test_a_total_that_was_too_small_is_not_told_any_more(healthy: Engine, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("holdfast.maintenance.verify.PROGRESS_EVERY", 1)
    told: list[Progress] = []
    verify(Histories(healthy), told.append, total=10)
    assert {progress.total for progress in told if progress.done <= 10} == {10}
    assert {progress.total for progress in told if progress.done > 10} == {None}


def test_who_asks_it_to_stop_gets_no_verdict(healthy: Engine, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("holdfast.maintenance.verify.PROGRESS_EVERY", 1)
    enough = threading.Event()

    def told(progress: Progress) -> None:
        if progress.jobs == 2:
            enough.set()

    with pytest.raises(Stopped, match="stopped after 2 jobs") as stopped:
        verify(Histories(healthy), told, stop=enough.is_set)
    assert stopped.value.progress.jobs == 2
