"""`holdfast verify` says yes to a history that is in order, and no to one that was tampered with."""

from sqlalchemy import text

from holdfast import NewJob
from holdfast.stores.sql_store import SqlStore
from tests.acceptance.command_line import CommandLine, InProcess


def tamper(store: SqlStore, job_id: str) -> None:
    """Change a row behind the guards' back, as only the owner of the database can."""
    remove, restore = {
        "sqlite": ("SELECT 1", "SELECT 1"),
        "postgresql": ("SET session_replication_role = replica", "SET session_replication_role = DEFAULT"),
    }[store.database.dialect]
    with store.database.engine.connect() as connection:
        connection.execute(text(remove))
        if store.database.dialect == "sqlite":
            names = connection.execute(text("SELECT name FROM sqlite_master WHERE type = 'trigger'")).scalars().all()
            for name in names:
                connection.exec_driver_sql(f"DROP TRIGGER {name}")
        connection.execute(text("UPDATE holdfast_jobs SET failures = 2 WHERE id = :id"), {"id": job_id})
        connection.execute(text(restore))


def test_a_store_in_order_is_a_yes(holdfast: CommandLine, store: SqlStore) -> None:
    store.enqueue_many([NewJob(task="add") for _ in range(3)])
    store.claim("ada")

    verdict = holdfast("verify", "--json").succeeded().document
    assert (verdict["ok"], verdict["jobs"], verdict["events"], verdict["violations"]) == (True, 3, 4, [])
    in_words = holdfast("verify").succeeded()
    assert (in_words.out, in_words.err) == ("In order: 3 jobs, 4 events, no violation.\n", "")


def test_a_row_that_the_log_does_not_bear_out_is_a_no(holdfast: CommandLine, here: InProcess, store: SqlStore) -> None:
    job_id = store.enqueue(NewJob(task="add")).id
    tamper(store, job_id)

    verdict = holdfast("verify", "--json").said_no().document
    assert verdict["ok"] is False
    [violation] = verdict["violations"]
    assert violation.keys() == {"job_id", "rule", "detail"}
    assert (violation["job_id"], violation["rule"]) == (job_id, "counters")
    in_words = here("verify").said_no().out
    assert job_id in in_words
    assert "counters" in in_words
