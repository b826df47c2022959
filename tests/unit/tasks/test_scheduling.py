"""`@app.schedule`: what an app declares after its modules are imported."""

from datetime import UTC, date, datetime
from typing import Any

import pytest

from holdfast import App, ConfigurationError, Context, InvalidInput, RetryPolicy, TaskGroup
from holdfast.domain.schedule import Declaration, job_at


@pytest.fixture
def app() -> App:
    return App("sqlite:///nowhere/never-opened.db", lease=30)


def test_a_task_with_a_time(app: App) -> None:
    @app.schedule("0 9 * * mon-fri", timezone="Europe/Berlin", kwargs={"to": "ann"})
    @app.task(queue="mail", retry=RetryPolicy("fixed", base=5.0), version=2)
    def greet(ctx: Context, to: str, loud: bool = False) -> str:
        return f"{ctx.attempt} {to} {loud}"

    assert app.tasks["greet"] is greet
    assert list(app.schedules) == ["greet"]
    [declared] = app.declarations()
    assert declared == Declaration(
        name="greet",
        task="greet",
        cron="0 9 * * mon-fri",
        timezone="Europe/Berlin",
        job={
            "queue": "mail",
            "retry": RetryPolicy("fixed", base=5.0).to_json(),
            "version": "2",
            "lease_seconds": 30.0,
            "payload": {"to": "ann"},
        },
    )
    with pytest.raises(TypeError):
        app.schedules["x"] = app.schedules["greet"]  # type: ignore[index]


def test_a_plain_function_becomes_a_task_and_copies_keep_their_options(app: App) -> None:
    @app.schedule(every="10m")
    def tidy() -> None: ...

    app.schedule(every="1h", name="tidy-slowly")(tidy.using(priority=-5, unique=True))
    convert = app.command("convert", ["convert"])
    app.schedule("0 * * * *", kwargs={"file": "a.png"})(convert)

    by_name = {declared.name: declared for declared in app.declarations()}
    assert list(by_name) == ["tidy", "tidy-slowly", "convert"]
    assert tidy.name == "tidy"
    assert by_name["tidy"].every_seconds == 600.0
    assert by_name["tidy-slowly"].job == {"priority": -5, "unique": True, "lease_seconds": 30.0, "payload": {}}
    assert by_name["convert"].job["payload"] == {"file": "a.png"}


def test_a_task_may_have_several_schedules_under_names_of_their_own(app: App) -> None:
    @app.schedule("0 9 * * *", name="morning", args=(1,))
    @app.schedule("0 21 * * *", name="evening", args=(2,))
    @app.task
    def report(part: int) -> None: ...

    assert [(one.name, one.job["payload"]) for one in app.declarations()] == [
        ("evening", {"part": 2}),
        ("morning", {"part": 1}),
    ]
    with pytest.raises(ConfigurationError, match=r"two schedules are called morning: .*test_scheduling\.py:\d+ and .*"):
        app.schedule("0 7 * * *", name="morning", args=(3,))(report)


def test_a_group_adds_its_prefix_also_before_there_is_an_app(app: App) -> None:
    inner, outer = TaskGroup("inner", queue="q"), TaskGroup("outer")

    @inner.schedule(every=60)
    @inner.schedule("0 9 * * *", name="daily")
    @inner.task
    def run() -> None: ...

    outer.include(inner)
    app.include(outer)

    @inner.schedule(every=60)
    def late() -> None: ...

    assert [(one.name, one.task, one.job["queue"]) for one in app.declarations()] == [
        ("outer.inner.daily", "outer.inner.run", "q"),
        ("outer.inner.run", "outer.inner.run", "q"),
        ("outer.inner.late", "outer.inner.late", "q"),
    ]


def test_the_planned_instant_may_be_an_argument(app: App) -> None:
    @app.schedule(every=60, tick="at", kwargs={"a": 1})
    @app.task
    def run(a: int, at: datetime) -> None: ...

    [declared] = app.declarations()
    assert (declared.tick_argument, declared.job["payload"]) == ("at", {"a": 1})
    moment = datetime(2026, 11, 16, 3, 4, 5, 678, tzinfo=UTC)
    job = job_at(declared.task, declared.job, declared.tick_argument, moment)
    assert job.payload == run.arguments.dump((1, moment), {})
    assert run.arguments.load(job.payload, None) == ((), {"a": 1, "at": moment})


MODULE = """
@app.schedule(every=60, kwargs={"value": 1})
@app.task
def run(value: "Later") -> None: ...

Later = int
"""


def test_annotations_may_name_what_is_defined_further_down(app: App) -> None:
    exec(MODULE, {"app": app})
    assert app.declarations()[0].job["payload"] == {"value": 1}


def test_and_what_does_not_fit_them_is_found_when_a_worker_starts(app: App) -> None:
    exec(MODULE.replace("Later = int", "Later = str"), {"app": app})
    with pytest.raises(InvalidInput, match="value"):
        app.declarations()


@pytest.mark.parametrize(
    ("said", "field"),
    [
        ({"cron": "whenever"}, "cron"),
        ({"cron": "0 9 * * *", "every": 60}, "every"),
        ({}, "cron"),
        ({"every": "soon"}, "every"),
        ({"every": 0.5}, "every"),
        ({"every": 60, "timezone": "Mars/Base"}, "timezone"),
        ({"every": 60, "name": ""}, "name"),
        ({"every": 60, "misfire": "maybe"}, "misfire"),
        ({"every": 60, "misfire": "all", "misfire_limit": 0}, "misfire_limit"),
        ({"every": 60, "misfire_grace": -1}, "misfire_grace"),
        ({"every": 60, "misfire_grace": "1s"}, "misfire_grace"),
        ({"every": 60, "kwargs": {"b": 1}}, "b"),
        ({"every": 60, "kwargs": {"a": "1"}}, "a"),
        ({"every": 60, "args": (1, 2, 3)}, "argument 3"),
        ({"every": 60, "tick": "nothing"}, "nothing"),
        ({"every": 60, "tick": "a"}, "a"),
        ({"every": 60, "tick": "day"}, "day"),
        ({"every": 60, "tick": "day", "kwargs": {"day": "2026-01-01"}}, "day"),
    ],
)
def test_what_cannot_work_is_an_error_at_import(app: App, said: dict[str, Any], field: str) -> None:
    @app.task
    def run(a: int = 0, day: date | None = None) -> None: ...

    with pytest.raises(InvalidInput) as refused:
        app.schedule(**said)(run)
    assert refused.value.field == field
    assert app.declarations() == []


def test_a_missing_argument_is_an_error_at_import(app: App) -> None:
    @app.task
    def run(a: int) -> None: ...

    with pytest.raises(InvalidInput, match="a: is missing"):
        app.schedule(every=60)(run)


@pytest.mark.parametrize("options", [{"delay": 5}, {"id": "01890a5d-ac96-774b-bcce-b302099a8057"}, {"connection": 1}])
def test_options_of_a_single_job_are_refused(app: App, options: dict[str, Any]) -> None:
    @app.task
    def run() -> None: ...

    with pytest.raises(InvalidInput, match="each tick has its own"):
        app.schedule(every=60)(run.using(**options))


def test_a_schedule_says_when_and_belongs_to_the_app_of_its_task(app: App) -> None:
    other = App("sqlite:///nowhere/never-opened.db")

    @other.task
    def run() -> None: ...

    with pytest.raises(InvalidInput, match="say when the task runs"):
        app.schedule(run)  # type: ignore[arg-type]
    with pytest.raises(ConfigurationError, match="task run does not belong to this app"):
        app.schedule(every=60)(run)
