"""Enqueueing through a task, on a real store."""

import asyncio
import threading
from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import Any

import pytest
from sqlalchemy import create_engine, text
from sqlalchemy.ext.asyncio import AsyncSession, create_async_engine

from holdfast import App, ConfigurationError, FunctionTask, InvalidInput, NotFound, RetryPolicy, State

ID = "01890a5d-ac96-774b-bcce-b302099a8057"


@pytest.fixture
def add(app: App) -> FunctionTask[..., int]:
    @app.task(queue="sums", retry="30s", timeout="1m", version=2)
    def add(a: int, b: int = 2) -> int:
        return a + b

    return add


Add = FunctionTask[..., int]


def count(app: App) -> int:
    return len(app.store.jobs(limit=500).items)


def test_a_task_is_still_the_function(add: Add) -> None:
    assert add(1, 2) == 3


def test_an_enqueued_job_has_the_arguments_and_the_options_of_its_task(add: Add) -> None:
    handle = add.enqueue(1, b=5)
    job = handle.job()

    assert (handle.id, handle.created, handle.state) == (job.id, True, State.PENDING)
    assert (job.task, job.task_version, job.payload, job.queue) == ("add", "2", {"a": 1, "b": 5}, "sums")
    assert (job.timeout_seconds, job.lease_seconds, job.max_attempts) == (60.0, 60.0, 3)
    assert job.retry == RetryPolicy("fixed", 30.0).to_json()


@pytest.mark.parametrize(
    ("options", "column", "value"),
    [
        ({"queue": "other"}, "queue", "other"),
        ({"priority": 7}, "priority", 7),
        ({"max_attempts": 9}, "max_attempts", 9),
        ({"max_crashes": 4}, "max_crashes", 4),
        ({"retry": None}, "retry", None),
        ({"timeout": None}, "timeout_seconds", None),
        ({"timeout": timedelta(hours=1)}, "timeout_seconds", 3600.0),
        ({"lease": "5m"}, "lease_seconds", 300.0),
        ({"lease": None}, "lease_seconds", 60.0),
        ({"source": "bank"}, "source", "bank"),
        ({"unique_key": "k"}, "unique_key", "k"),
        ({"id": ID.upper()}, "id", ID),
        ({"run_after": datetime(2040, 1, 1, tzinfo=UTC)}, "run_after", datetime(2040, 1, 1, tzinfo=UTC)),
        ({"traceparent": "00-ab-cd-01"}, "traceparent", "00-ab-cd-01"),
    ],
)
def test_using_changes_one_option_of_a_copy(add: Add, options: Any, column: str, value: Any) -> None:
    changed = add.using(**options)

    assert getattr(changed.enqueue(1, 2).job(), column) == value
    assert getattr(add.enqueue(1, 3).job(), column) != value or options == {"lease": None}
    assert changed(1, 2) == 3


def test_using_adds_up_and_of_when_the_later_word_counts(add: Add) -> None:
    later = add.using(delay="1h", priority=3).using(run_after=datetime(2040, 1, 1, tzinfo=UTC))

    job = later.enqueue(1, 2).job()
    assert (job.priority, job.run_after.year) == (3, 2040)
    delayed = later.using(delay=60).enqueue(1, 2).job()
    assert delayed.run_after - delayed.created_at == pytest.approx(timedelta(seconds=60), abs=timedelta(seconds=1))


def test_using_names_what_it_does_not_know(add: Add) -> None:
    with pytest.raises(InvalidInput, match="color: unknown option; known are connection, delay"):
        add.using(color="red")  # type: ignore[call-arg]


def test_a_unique_job_stands_in_for_the_next(add: Add) -> None:
    first = add.using(unique=True).enqueue(1, 2)
    second = add.using(unique=True).enqueue(1, 2)

    assert (second.id, second.created) == (first.id, False)
    assert add.using(unique=True).enqueue(1, 3).created


def test_a_wrong_argument_stores_nothing(app: App, add: Add) -> None:
    with pytest.raises(InvalidInput) as caught:
        add.enqueue("1", 2)
    assert caught.value.field == "a"
    assert count(app) == 0


def test_many_are_enqueued_together(add: Add) -> None:
    handles = add.enqueue_many([(1, 2), {"a": 3, "b": 4}, (5,)])

    assert [handle.job().payload for handle in handles] == [{"a": 1, "b": 2}, {"a": 3, "b": 4}, {"a": 5}]
    assert add.enqueue_many([]) == []
    assert len(add.enqueue_many((number, 1) for number in range(1_000))) == 1_000


@pytest.mark.parametrize(
    ("items", "field"),
    [
        ([(1, 2), (1, "2")], "items[1].b"),
        ([(1, 2), {"a": 1, "z": 2}], "items[1].z"),
        ([(1, 2), {}], "items[1].a"),
        ([(1, 2), [1, 2]], "items[1]"),
        ([5], "items[0]"),
        ({"a": 1}, "items"),
        ("ab", "items"),
    ],
)
def test_many_are_all_or_nothing_and_the_wrong_one_is_named(app: App, add: Add, items: Any, field: str) -> None:
    with pytest.raises(InvalidInput) as caught:
        add.enqueue_many(items)
    assert caught.value.field == field
    assert count(app) == 0


def test_one_id_cannot_name_many_jobs(add: Add) -> None:
    with pytest.raises(InvalidInput, match="id: names one job; there are 2 items"):
        add.using(id=ID).enqueue_many([(1,), (2,)])


def test_from_async_code(app: App, add: Add) -> None:
    async def run() -> list[dict[str, Any]]:
        one = await add.aenqueue(1, b=2)
        many = await add.aenqueue_many([(3,), {"a": 4}])
        return [handle.job().payload for handle in [one, *many]]

    assert asyncio.run(run()) == [{"a": 1, "b": 2}, {"a": 3}, {"a": 4}]
    with pytest.raises(InvalidInput, match="a: "):
        asyncio.run(add.aenqueue("1", 2))
    assert count(app) == 3


@pytest.mark.parametrize("commits", [True, False])
def test_in_the_users_own_transaction(app: App, add: Add, tmp_path: Path, commits: bool) -> None:
    count(app)  # the file is there
    engine = create_engine(f"sqlite:///{tmp_path}/jobs.db")
    with engine.connect() as connection:
        connection.execute(text("BEGIN IMMEDIATE"))
        handle = add.using(connection=connection).enqueue(1, 2)
        add.enqueue_many([(1, 2), (3, 4)], connection=connection)
        connection.commit() if commits else connection.rollback()
    engine.dispose()

    assert count(app) == (3 if commits else 0)
    if not commits:
        with pytest.raises(NotFound):
            handle.job()


@pytest.mark.parametrize("commits", [True, False])
def test_in_the_users_own_async_transaction(app: App, add: Add, tmp_path: Path, commits: bool) -> None:
    async def run() -> None:
        engine = create_async_engine(f"sqlite+aiosqlite:///{tmp_path}/jobs.db")
        async with AsyncSession(engine) as session:
            await add.using(connection=session).aenqueue(1, 2)
            await add.aenqueue_many([(1, 2)], connection=session)
            await (session.commit() if commits else session.rollback())
        await engine.dispose()

    count(app)
    asyncio.run(run())
    assert count(app) == (2 if commits else 0)


def test_an_async_connection_is_for_aenqueue(add: Add) -> None:
    with pytest.raises(InvalidInput, match=r"connection: .* use aenqueue"):
        add.using(connection=AsyncSession()).enqueue(1, 2)


def test_a_command_is_enqueued_by_name(app: App) -> None:
    convert = app.command("convert", ["convert"], queue="media", lease="2m")

    job = convert.using(priority=5).enqueue(file="a.png", sizes=[1, 2]).job()

    assert (job.task, job.payload, job.queue, job.priority) == (
        "convert",
        {"file": "a.png", "sizes": [1, 2]},
        "media",
        5,
    )
    assert job.lease_seconds == 120.0


def test_the_settings_say_what_the_app_does_not(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("DATABASE_URL", f"sqlite:///{tmp_path}/from-environment.db")
    monkeypatch.setenv("LEASE_SECONDS", "25")
    app = App()
    app.task(name="run")(lambda: None)

    assert app.tasks["run"].enqueue().job().lease_seconds == 25.0
    assert (tmp_path / "from-environment.db").exists()
    app.close()


def test_a_wrong_setting_is_said_at_first_use(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("DATABASE_URL", "mysql://host/db")
    app = App()
    with pytest.raises(ConfigurationError, match="DATABASE_URL"):
        _ = app.store


def test_the_store_is_opened_once_by_whoever_comes_first(app: App) -> None:
    stores: list[Any] = []
    threads = [threading.Thread(target=lambda: stores.append(app.store)) for _ in range(8)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert len(stores) == 8
    assert len({id(store) for store in stores}) == 1


def test_a_closed_app_opens_again(app: App, add: Add) -> None:
    handle = add.enqueue(1, 2)
    app.close()
    app.close()
    assert handle.job().payload == {"a": 1, "b": 2}


def test_a_flag_replaces_the_store(app: App, add: Add, tmp_path: Path) -> None:
    add.enqueue(1, 2)
    app.replace_store(f"sqlite:///{tmp_path}/other.db")
    assert count(app) == 0
