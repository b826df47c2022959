"""However much there is to read, verify needs the memory of a page."""

import tracemalloc

from sqlalchemy import Connection, Engine

from holdfast.maintenance.verify import verify
from holdfast.stores.histories import Histories
from tests.verify.ledger import guards_off

EVENTS = 30_000  # held all at once they would take three times what is allowed
MOST_BYTES = 4 * 1024 * 1024
THEN = "2024-01-01T00:00:00.000000Z"
ID = "00000000-0000-7000-8000-000000000001"


def numbers(count: int) -> str:
    return f"WITH RECURSIVE g (n) AS (SELECT 1 UNION ALL SELECT n + 1 FROM g WHERE n < {count})"


def write_one_long_history(connection: Connection) -> None:
    """Claimed and released, over and over."""
    attempts = EVENTS // 2
    connection.exec_driver_sql(
        "INSERT INTO holdfast_jobs (id, task, seq, transition, attempt, updated_at)"
        f" VALUES ('{ID}', 'count', {2 * attempts + 1}, 'released', {attempts}, '{THEN}')"
    )
    into = "INSERT INTO holdfast_events (job_id, seq, at, event, from_state, to_state, attempt, worker, lease)"
    connection.exec_driver_sql(f"{into} VALUES ('{ID}', 1, '{THEN}', 'enqueued', NULL, 'pending', 0, NULL, NULL)")
    for event, states, seq in (
        ("claimed", "'pending', 'running'", "2 * n"),
        ("released", "'running', 'pending'", "2 * n + 1"),
    ):
        connection.exec_driver_sql(
            f"{numbers(attempts)} {into} SELECT '{ID}', {seq}, '{THEN}', '{event}', {states}, n, 'worker',"
            " 'lease-' || n FROM g"
        )


def write_many_short_histories(connection: Connection) -> None:
    connection.exec_driver_sql(
        f"{numbers(EVENTS // 4)} INSERT INTO holdfast_jobs"
        " (task, state, seq, transition, attempt, updated_at, finished_at)"
        f" SELECT 'count', 'succeeded', 4, 'succeeded', 1, '{THEN}', '{THEN}' FROM g"
    )
    for seq, event, states, attempt, lease in (
        (1, "enqueued", "NULL, 'pending'", 0, "NULL"),
        (2, "claimed", "'pending', 'running'", 1, "'lease'"),
        (3, "cancel_requested", "'running', 'running'", 1, "'lease'"),
        (4, "succeeded", "'running', 'succeeded'", 1, "'lease'"),
    ):
        connection.exec_driver_sql(
            "INSERT INTO holdfast_events (job_id, seq, at, event, from_state, to_state, attempt, lease)"
            f" SELECT id, {seq}, updated_at, '{event}', {states}, {attempt}, {lease} FROM holdfast_jobs"
        )


def prune_most(connection: Connection) -> int:
    """All but the first jobs; how many that were."""
    most = "WHERE id > (SELECT id FROM holdfast_jobs ORDER BY id LIMIT 1 OFFSET 3000)"
    pruned = connection.exec_driver_sql(
        "INSERT INTO holdfast_events (job_id, seq, at, event, from_state, attempt)"
        f" SELECT id, 5, updated_at, 'pruned', 'succeeded', 1 FROM holdfast_jobs {most}"
    )
    connection.exec_driver_sql(f"DELETE FROM holdfast_jobs {most}")
    return pruned.rowcount


def peak_growth(engine: Engine, expected_events: int) -> int:
    """The most memory that a verification held at once, beyond what there was before it."""
    next(iter(Histories(engine)))  # connections and compiled statements are kept, whatever the size
    tracemalloc.start()
    try:
        verdict = verify(Histories(engine))
        _, peak = tracemalloc.get_traced_memory()
    finally:
        tracemalloc.stop()
    assert verdict.ok
    assert verdict.events == expected_events
    return peak


def test_one_long_history_is_streamed(empty: Engine) -> None:
    with guards_off(empty) as connection:
        write_one_long_history(connection)
    assert peak_growth(empty, EVENTS + 1) < MOST_BYTES


def test_many_short_histories_come_in_pages(empty: Engine) -> None:
    with guards_off(empty) as connection:
        write_many_short_histories(connection)
        pruned = prune_most(connection)
    assert pruned > 4_000
    assert peak_growth(empty, EVENTS + pruned) < MOST_BYTES
