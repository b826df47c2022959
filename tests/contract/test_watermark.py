"""What `holdfast_meta` says of retired histories only rises, and a history without an end is not retired."""

import pytest

from holdfast.domain.outcome import Succeeded
from holdfast.stores.sql_store import SqlStore
from holdfast.stores.verbs.retaining import watermark
from tests.contract.ground import ByHand, on_sqlite
from tests.contract.steps import settle_well, start

LOWERED = '{"through": "2020-01-01T00:00:00.000000Z", "jobs": 0, "events": 0}'


def retire_one(store: SqlStore, by_hand: ByHand) -> None:
    claimed = start(store)
    settle_well(store, claimed, Succeeded())
    by_hand("DELETE FROM holdfast_jobs WHERE id = :id", id=claimed.job_id)
    by_hand("INSERT INTO holdfast_retired_histories (job_id) VALUES (:id)", id=claimed.job_id)


@pytest.mark.parametrize(
    "statement",
    [
        "UPDATE holdfast_meta SET value = :lowered WHERE key = 'histories_retired'",
        "UPDATE holdfast_meta SET value = '{}' WHERE key = 'histories_retired'",
        "UPDATE holdfast_meta SET key = 'mine' WHERE key = 'histories_retired'",
        "DELETE FROM holdfast_meta WHERE key = 'histories_retired'",
        "INSERT INTO holdfast_meta VALUES ('histories_retired', :lowered)"
        " ON CONFLICT (key) DO UPDATE SET value = excluded.value",
    ],
)
def test_watermark_is_not_lowered(store: SqlStore, by_hand: ByHand, statement: str) -> None:
    refuses(store, by_hand, statement)


@on_sqlite
def test_watermark_is_not_replaced(store: SqlStore, by_hand: ByHand) -> None:
    refuses(store, by_hand, "REPLACE INTO holdfast_meta VALUES ('histories_retired', :lowered)")


@on_sqlite
def test_watermark_is_not_replaced_by_another_key(store: SqlStore, by_hand: ByHand) -> None:
    by_hand("INSERT INTO holdfast_meta VALUES ('mine', :lowered)", lowered=LOWERED)
    refuses(store, by_hand, "UPDATE OR REPLACE holdfast_meta SET key = 'histories_retired' WHERE key = 'mine'")


@on_sqlite
@pytest.mark.parametrize(
    "statement",
    [
        "INSERT OR REPLACE INTO holdfast_meta (rowid, key, value) SELECT rowid, 'other', '' FROM holdfast_meta",
        "UPDATE OR REPLACE holdfast_meta SET rowid = (SELECT max(rowid) FROM holdfast_meta) WHERE key = 'mine'",
        "UPDATE OR REPLACE holdfast_meta SET rowid = rowid + 1",
    ],
)
def test_watermark_is_not_replaced_by_its_rowid(store: SqlStore, by_hand: ByHand, statement: str) -> None:
    by_hand("INSERT INTO holdfast_meta VALUES ('mine', '')")
    refuses(store, by_hand, statement)


def refuses(store: SqlStore, by_hand: ByHand, statement: str) -> None:
    retire_one(store, by_hand)
    before = watermark(store.database)
    named = {"lowered": LOWERED} if ":lowered" in statement else {}
    with by_hand.refused():
        by_hand(statement, **named)
    assert watermark(store.database) == before


def test_watermark_counts_every_history(store: SqlStore, by_hand: ByHand) -> None:
    for jobs in (1, 2, 3):
        retire_one(store, by_hand)
        mark = watermark(store.database)
        assert mark is not None
        assert (mark.jobs, mark.events) == (jobs, jobs * 4)
