"""`app.records`: what jobs found, read and written outside any job."""

import re
from dataclasses import dataclass
from datetime import UTC, datetime
from decimal import Decimal
from pathlib import Path
from typing import Any

import pytest

from holdfast import App, Context, InvalidInput, NotFound, dedupe_key
from holdfast.domain.record import Kept
from tests.servers.waiting import DEADLINE_SECONDS


def test_records_are_kept_read_and_deleted(app: App) -> None:
    coin = {"title": "1881-S Morgan", "price": Decimal("19.90"), "sold_at": datetime(2030, 1, 31, tzinfo=UTC)}
    first = app.records.record("coins", "shop", coin)
    assert (first.kept, first.dedupe_key) == (Kept.CREATED, dedupe_key(coin))
    again = app.records.record("coins", "shop", {**coin, "title": "1881-s  MORGAN"})
    assert (again.kept, again.id) == (Kept.EXISTING, first.id)
    better = app.records.record("coins", "shop", coin, strength=0.9)
    assert (better.kept, better.id) == (Kept.REPLACED, first.id)
    named = app.records.record("coins", "shop", coin, external_id="7")
    assert (named.kept, named.dedupe_key) == (Kept.CREATED, "ext_7")
    record = app.records.get(first.id)
    assert (record.strength, record.data["price"], record.data["sold_at"][:10]) == (0.9, "19.90", "2030-01-31")
    assert [item.id for item in app.records.query(scope="coins", limit=1).items] == [named.id]
    assert app.records.query(scope="coins", dedupe_key="ext_7").items[0].external_id == "7"
    assert app.records.delete("coins", "shop", "ext_7") == 1
    assert app.records.delete("coins") == 1
    with pytest.raises(NotFound):
        app.records.get(first.id)


def test_there_is_one_of_its_scope(app: App) -> None:
    assert app.records.upsert_single("coin 7", {"value": 1}).kept is Kept.CREATED
    assert app.records.upsert_single("coin 7", {"value": 0}).kept is Kept.REPLACED
    app.records.upsert_single("coin 8", {"value": 5})
    assert [record.data for record in app.records.every(scope="coin 7")] == [{"value": 0}]


def test_many_are_kept_together_or_not_at_all(app: App) -> None:
    @dataclass
    class Found:
        title: str
        price: float

    records = [{"scope": "coins", "source": "shop", "data": Found(f"coin {n}", n), "strength": n} for n in range(5)]
    assert [written.kept for written in app.records.record_many(records)] == [Kept.CREATED] * 5
    with pytest.raises(InvalidInput) as refused:
        app.records.record_many(
            [{"scope": "other", "source": "shop", "data": {"title": "x"}}, {**records[0], "scope": ""}]
        )
    assert "1" in refused.value.field
    assert list(app.records.every(scope="other")) == []
    assert [record.data["price"] for record in app.records.every(scope="coins")] == [4.0, 3.0, 2.0, 1.0, 0.0]
    assert app.records.record_many([]) == []


def test_what_has_nothing_to_tell_it_by_is_refused(app: App) -> None:
    with pytest.raises(InvalidInput, match="external_id"):
        app.records.record("coins", "shop", {"grade": "MS65"})
    assert app.records.record("coins", "shop", {"grade": "MS65"}, external_id="7").kept is Kept.CREATED


def test_the_page_about_records_shows_what_works(app: App) -> None:
    """Its first two examples, as they stand."""
    page = (Path(__file__).parents[2] / "docs" / "records.md").read_text(encoding="utf-8")
    task, reading = re.findall(r"```python\n(.*?)```", page, re.DOTALL)[:2]
    items = [{"id": "7", "match": 0.5, "title": "1881-S"}, {"id": "8", "match": 0.9, "title": "1881-S, MS65"}]
    names: dict[str, Any] = {"app": app, "Context": Context, "search": lambda _coin: items, "estimate": len}
    exec(task, names)
    handle = names["collect"].enqueue(coin="1881-S")
    app.work()
    assert handle.result(timeout=DEADLINE_SECONDS) == 2
    names["record_id"] = app.records.query(scope="1881-S", dedupe_key="ext_8").items[0].id
    exec(reading, names)
    assert [record.source for record in app.records.every(scope="1881-S")] == ["import", ""]


def test_a_strength_is_a_number_that_can_be_kept(app: App) -> None:
    for strength in (10**400, float("nan"), float("-inf"), True, "strong"):
        with pytest.raises(InvalidInput, match="strength: must be"):
            app.records.record("coins", "shop", {"title": "a"}, strength=strength)  # type: ignore[arg-type]
    assert app.records.record("coins", "shop", {"title": "a"}, strength=10**300).kept is Kept.CREATED
