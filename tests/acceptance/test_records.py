"""`holdfast records`: list, show and delete."""

from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from holdfast.domain.jsonable import iso
from holdfast.domain.record import NewRecord
from holdfast.stores.sql_store import SqlStore
from holdfast.wiring.sql import open_database
from tests.acceptance.command_line import InProcess
from tests.contract.conftest import database_url, migrated_database, migrated_file, pooler
from tests.contract.steps import beat, start

__all__ = ["database_url", "migrated_database", "migrated_file", "pooler"]

NOBODY = "0190aaaa-0000-7000-8000-000000000000"


@pytest.fixture
def store(database_url: str) -> Iterator[SqlStore]:
    """On a database that is there already: to make one takes longer than all of these tests."""
    store = SqlStore(open_database(database_url))
    yield store
    store.close()


@pytest.fixture
def here(tmp_path: Path, database_url: str) -> InProcess:
    return InProcess(tmp_path, database_url)


def new(key: str, scope: str = "coin", source: str = "shop", data: Any = 1) -> NewRecord:
    return NewRecord(scope=scope, source=source, dedupe_key=key, data=data)


def test_records_are_listed_newest_first_and_narrowed(here: InProcess, store: SqlStore) -> None:
    nothing = here("records").said_no()
    assert (nothing.out, nothing.err) == ("", "There is no such record.\n")
    assert here("records", "--json").said_no().document == {"records": [], "after": None}
    claimed = start(store)
    store.write_records([new("ext_1", data={"title": "Ünïcode", "n": 1.5}), new("ext_2", "medal", "fair")])
    [mine] = store.write_records([new("ext_3")], beat(claimed))

    def keys(*arguments: str) -> list[str]:
        found = here("records", "--json", *arguments).succeeded().document
        return [record["dedupe_key"] for record in found["records"]]

    assert keys()[0] == "ext_3"
    assert sorted(keys()) == ["ext_1", "ext_2", "ext_3"]
    assert sorted(keys("--scope", "coin", "--source", "shop")) == ["ext_1", "ext_3"]
    assert keys("--job", claimed.job_id) == keys("--scope", "coin", "--key", "ext_3") == ["ext_3"]
    first = here("records", "--limit", "1", "--json").succeeded().document
    assert (first["records"][0]["id"], first["after"]) == (mine.id, mine.id)
    assert sorted(keys("--after", mine.id)) == ["ext_1", "ext_2"]

    listed = here("records", "--limit", "2").succeeded()
    heading, row, _ = listed.out.splitlines()
    assert heading.split() == ["id", "scope", "source", "key", "strength", "updated", "data"]
    assert row.split()[:5] == [mine.id, "coin", "shop", "ext_3", "0"]
    assert "--after" in listed.err
    assert '{"title": "Ünïcode", "n": 1.5}' in here("records", "--key", "ext_1", "--scope", "coin").succeeded().out


def test_one_record_is_shown(here: InProcess, store: SqlStore) -> None:
    [written] = store.write_records([new("ext_1", data={"title": "\x1b[31mred", "big": 2**70})])
    shown = here("records", "--json", "show", written.id).succeeded().document
    assert (shown["id"], shown["data"]["big"], shown["strength"]) == (written.id, 2**70, 0.0)
    text = here("records", "show", written.id).succeeded().out
    assert "ext_1" in text
    assert iso(store.record(written.id).created_at) in text
    here("records", "--limit", "5", "show", written.id).refused("records", "behind the command")
    assert str(2**70) in text
    assert "\x1b" not in text, "what would steer the terminal is shown, not obeyed"
    assert NOBODY in here("records", "show", NOBODY).said_no().err
    here("records", "show", "x").refused("record_id", "UUID")


def test_records_are_deleted_after_a_question(here: InProcess, store: SqlStore) -> None:
    store.write_records([new("ext_1"), new("ext_2"), new("ext_3", source="fair"), new("ext_4", "medal")])
    here("records", "delete", "--scope", "coin").refused("--yes", "3 records", "'coin'")
    here("records", "delete", "--yes").refused("--scope")
    here("records", "--source", "fair", "delete", "--scope", "coin", "--yes").refused("records", "behind the command")
    here("records", "--limit", "5", "delete", "--scope", "coin", "--yes").refused("records", "behind the command")
    assert len(store.records().items) == 4
    deleted = here("records", "delete", "--scope", "coin", "--source", "shop", "--key", "ext_1", "--yes", "--json")
    assert deleted.succeeded().document == {"deleted": 1}
    assert here("records", "delete", "--scope", "coin", "--yes").succeeded().out == "2 records deleted.\n"
    assert here("records", "delete", "--scope", "coin").succeeded().out == "0 records deleted.\n"
    assert [record.scope for record in store.records().items] == ["medal"]


def test_a_wrong_question_names_the_field_and_the_rule(here: InProcess) -> None:
    here("records", "--limit", "0").refused("limit", "between 1 and 1000")
    here("records", "--job", "x").refused("job_id", "UUID")
    here("records", "--key", "ext_1").refused("dedupe_key", "scope")
    here("records", "--scope", "").refused("scope", "empty")
