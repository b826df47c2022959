"""The audit log is append-only and the engine's alone; retention has a door of its own, for whole histories only."""

import pytest

from holdfast.domain.lifecycle import State
from holdfast.domain.outcome import Succeeded
from holdfast.stores.sql_store import SqlStore
from tests.contract.ground import FAR, ByHand, on_postgres, on_sqlite
from tests.contract.steps import history, job_in, settle_well, start

FORGED = "(job_id, seq, at, event, from_state, to_state, attempt)"


@pytest.fixture
def job_id(store: SqlStore) -> str:
    claimed = start(store)
    settle_well(store, claimed, Succeeded())
    return claimed.job_id


@pytest.mark.usefixtures("job_id")
@pytest.mark.parametrize(
    "change",
    ["event = 'failed'", "detail = NULL", f"at = '{FAR}'", "seq = seq + 10", "attempt = 7", "job_id = job_id"],
)
def test_it_takes_no_update(by_hand: ByHand, change: str) -> None:
    for where in ("", " WHERE seq = 2"):
        with by_hand.refused():
            by_hand(f"UPDATE holdfast_events SET {change}{where}")


@pytest.mark.usefixtures("job_id")
@pytest.mark.parametrize("where", ["true", "seq = 3", "event = 'claimed'", "seq > 1"])
def test_it_takes_no_delete(by_hand: ByHand, where: str) -> None:
    with by_hand.refused():
        by_hand(f"DELETE FROM holdfast_events WHERE {where}")


def forgeries(job_id: str) -> dict[str, str]:
    unknown = "01890a5d-ac96-774b-bcce-b302099a8057"
    now = "(SELECT updated_at FROM holdfast_jobs)"
    return {
        "a next event": f"('{job_id}', 4, '{FAR}', 'requeued', 'succeeded', 'pending', 1)",
        "an event beyond a gap": f"('{job_id}', 9, '{FAR}', 'claimed', 'pending', 'running', 2)",
        "an event before the first": f"('{job_id}', 0, '{FAR}', 'enqueued', NULL, 'pending', 0)",
        "the last event again": f"('{job_id}', 3, {now}, 'succeeded', 'running', 'succeeded', 1)",
        "another last event": f"('{job_id}', 3, {now}, 'failed', 'running', 'failed', 1)",
        "an end that did not happen": f"('{job_id}', 4, '{FAR}', 'pruned', 'succeeded', NULL, 1)",
        "a job that never was": f"('{unknown}', 1, '{FAR}', 'enqueued', NULL, 'pending', 0)",
        "the end of a job that never was": f"('{unknown}', 1, '{FAR}', 'pruned', 'failed', NULL, 0)",
    }


def test_it_takes_no_insert(by_hand: ByHand, job_id: str) -> None:
    for name, values in forgeries(job_id).items():
        with by_hand.refused():
            by_hand(f"INSERT INTO holdfast_events {FORGED} VALUES {values}")
        assert name


def test_it_takes_no_insert_of_what_was_selected(by_hand: ByHand, job_id: str) -> None:
    assert job_id
    with by_hand.refused():
        by_hand(
            f"INSERT INTO holdfast_events {FORGED}"
            " SELECT job_id, seq + 3, at, event, from_state, to_state, attempt FROM holdfast_events"
        )


@on_sqlite
@pytest.mark.parametrize("verb", ["INSERT OR REPLACE", "REPLACE", "INSERT OR IGNORE", "INSERT OR ROLLBACK"])
def test_no_conflict_clause_of_sqlite_s_is_a_way_in(by_hand: ByHand, job_id: str, verb: str) -> None:
    for values in forgeries(job_id).values():
        with by_hand.refused():
            by_hand(f"{verb} INTO holdfast_events {FORGED} VALUES {values}")
    with by_hand.refused():
        by_hand("UPDATE OR REPLACE holdfast_events SET seq = 1 WHERE seq = 2")


@on_postgres
@pytest.mark.usefixtures("job_id")
def test_no_other_verb_of_postgres_s_is_a_way_in(by_hand: ByHand) -> None:
    upsert = "ON CONFLICT (job_id, seq) DO UPDATE SET event = 'failed'"
    merge = "MERGE INTO holdfast_events e USING holdfast_jobs j ON e.job_id = j.id WHEN MATCHED THEN"
    statements = [
        "TRUNCATE holdfast_events",
        "TRUNCATE holdfast_events, holdfast_jobs CASCADE",
        f"INSERT INTO holdfast_events SELECT * FROM holdfast_events {upsert}",
        "WITH gone AS (DELETE FROM holdfast_events RETURNING 1) SELECT count(*) FROM gone",
    ]
    [(version,)] = by_hand("SELECT current_setting('server_version_num')")
    if int(version) >= 150_000:
        statements += [f"{merge} UPDATE SET event = 'failed'", f"{merge} DELETE"]
    for statement in statements:
        with by_hand.refused("its rows are kept by the engine alone"):
            by_hand(statement)


def test_even_a_statement_that_touches_nothing_is_refused_or_harmless(by_hand: ByHand, job_id: str) -> None:
    before = by_hand.everything()
    if by_hand.is_postgres:
        with by_hand.refused():
            by_hand("DELETE FROM holdfast_events WHERE false")
    else:
        by_hand("DELETE FROM holdfast_events WHERE false")
    assert by_hand.everything() == before
    assert job_id


# Retention's door


def retire(by_hand: ByHand, job_id: str) -> None:
    by_hand("INSERT INTO holdfast_retired_histories (job_id) VALUES (:id)", id=job_id)


def test_a_pruned_job_s_history_is_retired_whole(store: SqlStore, by_hand: ByHand, job_id: str) -> None:
    kept = job_in(store, State.FAILED)
    by_hand("DELETE FROM holdfast_jobs WHERE id = :id", id=job_id)
    assert history(store, job_id) == ["enqueued", "claimed", "succeeded", "pruned"]
    retire(by_hand, job_id)
    assert history(store, job_id) == []
    assert history(store, kept) == ["enqueued", "claimed", "failed"]
    assert by_hand.count("holdfast_retired_histories") == 1, "the id stays refused"


@pytest.mark.parametrize("state", State)
def test_the_history_of_a_job_that_exists_is_not(store: SqlStore, by_hand: ByHand, state: State) -> None:
    alive = job_in(store, state)
    with by_hand.refused("only after its job was pruned"):
        retire(by_hand, alive)


def test_one_living_job_in_the_statement_keeps_all_the_others(store: SqlStore, by_hand: ByHand, job_id: str) -> None:
    by_hand("DELETE FROM holdfast_jobs")
    alive = job_in(store, State.PENDING)
    with by_hand.refused("only after its job was pruned"):
        by_hand(
            "INSERT INTO holdfast_retired_histories (job_id)"
            f" SELECT DISTINCT job_id FROM holdfast_events WHERE job_id IN ('{job_id}', '{alive}')"
        )


def test_a_retired_id_is_not_changed_into_another(store: SqlStore, by_hand: ByHand, job_id: str) -> None:
    """The row would open the log for the other history, and no watermark would count it."""
    other = job_in(store, State.SUCCEEDED)
    by_hand("DELETE FROM holdfast_jobs")
    retire(by_hand, job_id)
    with by_hand.refused():
        by_hand("UPDATE holdfast_retired_histories SET job_id = :id", id=other)
    with by_hand.refused():
        by_hand("DELETE FROM holdfast_events WHERE job_id = :id", id=other)


def test_many_are_retired_at_once(store: SqlStore, by_hand: ByHand) -> None:
    for _ in range(5):
        job_in(store, State.SUCCEEDED)
    by_hand("DELETE FROM holdfast_jobs")
    by_hand("INSERT INTO holdfast_retired_histories (job_id) SELECT DISTINCT job_id FROM holdfast_events")
    assert (by_hand.count("holdfast_events"), by_hand.count("holdfast_retired_histories")) == (0, 5)


def test_a_part_of_a_pruned_job_s_history_is_not_deleted(by_hand: ByHand, job_id: str) -> None:
    by_hand("DELETE FROM holdfast_jobs")
    for where in ("seq = 2", "event = 'pruned'", f"job_id = '{job_id}' AND seq < 4"):
        with by_hand.refused():
            by_hand(f"DELETE FROM holdfast_events WHERE {where}")


def test_a_pruned_job_s_history_takes_no_further_event(by_hand: ByHand, job_id: str) -> None:
    by_hand("DELETE FROM holdfast_jobs")
    for values in forgeries(job_id).values():
        if "SELECT" not in values:
            with by_hand.refused():
                by_hand(f"INSERT INTO holdfast_events {FORGED} VALUES {values.replace(', 4,', ', 5,')}")


def test_retiring_what_never_was_does_nothing(by_hand: ByHand, job_id: str) -> None:
    before = by_hand.everything()
    retire(by_hand, "01890a5d-ac96-774b-bcce-b302099a8057")
    assert by_hand.everything() == before
    assert job_id
