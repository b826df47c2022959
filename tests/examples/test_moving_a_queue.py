"""docs/scale.md: jobs that are due later move to another server, none lost and none doubled, however often."""

from __future__ import annotations

import re
import uuid
from collections.abc import Iterator
from contextlib import ExitStack
from datetime import UTC, datetime, timedelta

import pytest

from holdfast.domain.answers import OperatorAnswer
from holdfast.domain.lifecycle import State
from holdfast.domain.outcome import Snoozed
from holdfast.domain.retry import RetryPolicy
from holdfast.stores.sql_store import SqlStore
from holdfast.throwaway.postgres import PostgresEndpoint
from tests.chaos.conftest import postgres_template
from tests.chaos.databases import assert_verified, opened
from tests.contract.steps import claim_this, enqueue, settle_well
from tests.examples.scale_page import PAGE

__all__ = ["postgres_template"]

[SCRIPT] = re.findall(r"<!-- python: move -->\n```python\n(.*?)\n```", PAGE, re.DOTALL)


@pytest.fixture
def urls(postgres_server: PostgresEndpoint, postgres_template: str) -> Iterator[list[str]]:
    names = [f"moving_{uuid.uuid4().hex}" for _ in range(2)]
    for name in names:
        postgres_server.create_database(name, postgres_template)
    yield [postgres_server.url(name) for name in names]
    for name in names:
        postgres_server.drop_database(name)


@pytest.fixture
def stores(urls: list[str]) -> Iterator[list[SqlStore]]:
    with ExitStack() as stack:
        yield [stack.enter_context(opened(url)) for url in urls]
    for url in urls:
        assert_verified(url)


def move(urls: list[str]) -> None:
    script = SCRIPT.replace('"OLD"', repr(urls[0])).replace('"NEW"', repr(urls[1]))
    names: dict[str, SqlStore] = {}
    try:
        exec(script, names)
    finally:
        for name in ("old", "new"):
            names[name].close()


def test_what_never_ran_and_is_due_later_moves_as_it_is(urls: list[str], stores: list[SqlStore]) -> None:
    old, new = stores
    options = {
        "queue": "mail",
        "run_after": datetime.now(UTC) + timedelta(days=30),
        "payload": {"to": "ann"},
        "version": "2",
        "priority": 7,
        "max_attempts": 5,
        "max_crashes": 2,
        "retry": RetryPolicy("linear", 3.0, jitter=0.0),
        "timeout_seconds": 9.0,
        "lease_seconds": 90.0,
        "source": "smtp",
        "unique_key": "ann",
        "webhook": "https://example.com/hook",
    }
    later = enqueue(old, "send", **options)
    many = [enqueue(old, "send", queue="mail", delay="2h", payload={"number": number}) for number in range(3)]
    stays = [enqueue(old, "send", queue="mail"), enqueue(old, "send", queue="reports", delay="2h")]
    begun = claim_this(old, enqueue(old, "send", queue="mail"))
    settle_well(old, begun, Snoozed(7200.0))
    before = old.job(later)
    move(urls)
    after = new.job(later)
    own = {"seq", "state", "transition", "created_at", "updated_at"}
    assert {name: getattr(after, name) for name in before.__slots__ if name not in own} == {
        name: getattr(before, name) for name in before.__slots__ if name not in own
    }
    assert [old.job(job_id).state for job_id in (later, *many)] == [State.CANCELLED] * 4
    assert [new.job(job_id).state for job_id in (later, *many)] == [State.PENDING] * 4
    assert [old.job(job_id).state for job_id in (*stays, begun.job_id)] == [State.PENDING] * 3
    assert len(new.jobs().items) == 4


def test_a_move_that_was_cut_off_is_finished_by_the_next(
    urls: list[str], stores: list[SqlStore], monkeypatch: pytest.MonkeyPatch
) -> None:
    old, new = stores
    ids = [enqueue(old, "send", queue="mail", delay="2h", payload={"number": number}) for number in range(3)]

    def cut_off(*_: object) -> list[OperatorAnswer]:
        raise ConnectionError("between the two")

    with monkeypatch.context() as patch:
        patch.setattr(SqlStore, "cancel", cut_off)
        with pytest.raises(ConnectionError):
            move(urls)
    assert [old.job(job_id).state for job_id in ids] == [State.PENDING] * 3, "lost is nothing"
    move(urls)
    move(urls)
    assert [old.job(job_id).state for job_id in ids] == [State.CANCELLED] * 3
    assert sorted(job.id for job in new.jobs().items) == ids, "and doubled neither"
